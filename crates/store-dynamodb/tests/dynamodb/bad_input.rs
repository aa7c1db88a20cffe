//! What is missing or wrong is said in one line that names the setting to change.

use std::process::Command;

use onlyonce_conformance::servers::dynamodb::DynamoDb;
use onlyonce_conformance::servers::free_port;
use onlyonce_store_dynamodb::{DynamoOptions, DynamoStore, OpenError, migrate};

use crate::front::{Act, Front, error};
use crate::kit::{Table, options};

async fn refused(options: &DynamoOptions) -> (OpenError, String) {
    let error = DynamoStore::open(options).await.unwrap_err();
    let line = error.to_string();
    assert!(!line.contains('\n'), "{line}");
    (error, line)
}

#[tokio::test]
async fn a_missing_table_is_made_by_a_command_that_the_line_gives() {
    let server = DynamoDb::start();
    let options = options(server.address());
    let (error, line) = refused(&options).await;
    assert!(matches!(error, OpenError::NoTable { .. }));
    let command = format!("onlyonce migrate --store {}", options.url());
    assert!(line.contains(&command), "{line}");
    migrate(&options).await.unwrap();
    DynamoStore::open(&options).await.unwrap();
}

#[tokio::test]
async fn an_endpoint_where_nobody_answers_is_named() {
    let address = ([127, 0, 0, 1], free_port()).into();
    let (error, line) = refused(&options(address)).await;
    assert!(matches!(error, OpenError::Unreachable { .. }));
    assert!(
        line.contains(&address.to_string()) && line.contains("--store"),
        "{line}"
    );
}

#[tokio::test]
async fn a_missing_permission_is_named() {
    let table = Table::new().await;
    let front = Front::start(table.server.address()).await;
    let mut options = table.options.clone();
    options.endpoint = Some(format!("http://{}", front.address));
    for action in ["DescribeTable", "GetItem"] {
        front.on(action, 1, Act::Answer(400, error("AccessDeniedException")));
        let (error, line) = refused(&options).await;
        assert!(matches!(error, OpenError::Denied { .. }), "{line}");
        assert!(line.contains(&format!("allow dynamodb:{action}")), "{line}");
    }
    front.on(
        "CreateTable",
        1,
        Act::Answer(400, error("AccessDeniedException")),
    );
    options.table = "other".into();
    let line = migrate(&options).await.unwrap_err().to_string();
    assert!(line.contains("allow dynamodb:CreateTable"), "{line}");
}

#[tokio::test]
async fn credentials_that_aws_does_not_know_are_named() {
    let table = Table::new().await;
    let front = Front::start(table.server.address()).await;
    let mut options = table.options.clone();
    options.endpoint = Some(format!("http://{}", front.address));
    for code in ["UnrecognizedClientException", "InvalidSignatureException"] {
        front.on("DescribeTable", 1, Act::Answer(400, error(code)));
        let (error, line) = refused(&options).await;
        assert!(matches!(error, OpenError::BadCredentials { .. }));
        assert!(
            line.contains("AWS_ACCESS_KEY_ID") && line.contains("clock"),
            "{line}"
        );
    }
}

const URL: &str = "ONLYONCE_TEST_DYNAMODB_URL";

/// Opens a store as the environment says. By itself it needs a table; the tests below run it in
/// a process of its own with an environment that lacks something.
#[tokio::test]
async fn a_store_opens_as_the_environment_says() {
    if let Ok(url) = std::env::var(URL) {
        match DynamoStore::open(&DynamoOptions::from_url(&url).unwrap()).await {
            Ok(store) => println!("opened {store:?}"),
            Err(error) => println!("refused: {error}"),
        }
        return;
    }
    let table = Table::new().await;
    let said = in_an_environment(
        &table.options.url(),
        &[
            ("AWS_ACCESS_KEY_ID", "test"),
            ("AWS_SECRET_ACCESS_KEY", "test"),
        ],
    );
    assert!(
        said.contains("opened DynamoStore(dynamodb://keys?"),
        "{said}"
    );
}

/// What opening says in a process with nothing in its environment but this.
fn in_an_environment(url: &str, environment: &[(&str, &str)]) -> String {
    let output = Command::new(std::env::current_exe().unwrap())
        .args([
            "--exact",
            "bad_input::a_store_opens_as_the_environment_says",
        ])
        .arg("--nocapture")
        .env_clear()
        .env(URL, url)
        .env("HOME", "/nonexistent")
        .env("AWS_EC2_METADATA_DISABLED", "true")
        .envs(environment.iter().copied())
        .output()
        .unwrap();
    String::from_utf8(output.stdout).unwrap()
}

#[test]
fn a_missing_region_is_named() {
    let keys = [
        ("AWS_ACCESS_KEY_ID", "test"),
        ("AWS_SECRET_ACCESS_KEY", "test"),
    ];
    let said = in_an_environment("dynamodb://keys?endpoint=http://127.0.0.1:1", &keys);
    assert!(
        said.contains("no AWS region: add ?region=REGION to --store"),
        "{said}"
    );
}

#[test]
fn missing_credentials_are_named() {
    let url = "dynamodb://keys?region=eu-central-1&endpoint=http://127.0.0.1:1";
    let said = in_an_environment(url, &[]);
    assert!(
        said.contains("no AWS credentials: set AWS_ACCESS_KEY_ID"),
        "{said}"
    );
}
