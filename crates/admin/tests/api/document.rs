//! The `OpenAPI` document says what the API does, and no more.

use serde_json::{Value, json};

use crate::kit::{CHANGER, READER, SEER, Stage, request};
use crate::schema::{document, errors};

const METHODS: [&str; 7] = ["GET", "POST", "PUT", "PATCH", "DELETE", "OPTIONS", "TRACE"];

/// Every operation: path, method, description.
pub(crate) fn operations(document: &Value) -> Vec<(String, String, Value)> {
    let paths = document["paths"].as_object().unwrap();
    let operations = paths.iter().flat_map(|(path, methods)| {
        let methods = methods.as_object().unwrap().iter();
        methods.map(|(method, what)| (path.clone(), method.to_uppercase(), what.clone()))
    });
    operations.collect()
}

/// A path with something in place of its parameters.
pub(crate) fn filled(path: &str) -> String {
    path.replace("{id}", &"ab".repeat(32))
        .replace("{name}", "index.html")
}

/// A method that works and is not documented, or the reverse, is a lie either way.
#[tokio::test]
async fn every_method_is_documented_and_no_other_works() {
    let (stage, document) = (Stage::start().await, document());
    let mut asked = 0;
    for (path, methods) in document["paths"].as_object().unwrap() {
        for method in METHODS {
            let documented = methods.get(method.to_lowercase()).is_some();
            let answer = stage
                .ask(request(method, &filled(path), Some(CHANGER), None))
                .await;
            assert_eq!(answer.status != 405, documented, "{method} {path}");
            if !documented {
                answer.assert_problem(405, "method_not_allowed");
                assert!(!answer.header("allow").is_empty(), "{method} {path}");
            }
            asked += 1;
        }
    }
    assert!(asked > 100);
}

#[test]
fn every_example_is_what_its_schema_says() {
    let document = document();
    let mut checked = 0;
    for (path, method, what) in operations(&document) {
        let answers = what["responses"].as_object().unwrap().values();
        let bodies = answers.chain(Some(&what["requestBody"]));
        for content in bodies.filter_map(|body| body["content"].get("application/json")) {
            let Some(example) = content.get("example") else {
                continue;
            };
            let wrong = errors(&document, &content["schema"], example);
            assert!(wrong.is_empty(), "{method} {path}: {wrong:?}");
            checked += 1;
        }
    }
    assert!(checked >= 12, "{checked}");
}

/// What the API really answers is what the document says, to the last field.
#[tokio::test]
async fn every_answer_is_what_its_schema_says() {
    let (stage, document) = (Stage::start().await, document());
    let unknown = stage.unknown("unknown").await;
    let completed = stage.completed("completed").await;
    let dead = stage.dead_letter("dead").await;
    let change = json!({ "action": "released", "reason": "it never arrived" });
    let changed = stage.resolve(&unknown, change).await.json();
    let schema = json!({ "$ref": "#/components/schemas/Changed" });
    assert_eq!(errors(&document, &schema, &changed), [""; 0]);
    let paths = [
        ("/api/v1/whoami", "/api/v1/whoami".to_owned()),
        ("/api/v1/overview", "/api/v1/overview".to_owned()),
        ("/api/v1/series", "/api/v1/series?seconds=60".to_owned()),
        ("/api/v1/keys", "/api/v1/keys".to_owned()),
        ("/api/v1/keys/{id}", format!("/api/v1/keys/{unknown}")),
        ("/api/v1/keys/{id}", format!("/api/v1/keys/{completed}")),
        ("/api/v1/keys/{id}", format!("/api/v1/keys/{dead}")),
        ("/api/v1/dead-letters", "/api/v1/dead-letters".to_owned()),
        ("/api/v1/audit", "/api/v1/audit".to_owned()),
        ("/api/v1/audit", format!("/api/v1/audit?key={unknown}")),
        ("/api/v1/config", "/api/v1/config".to_owned()),
    ];
    for (path, asked) in paths {
        let content = &document["paths"][path]["get"]["responses"]["200"]["content"];
        let schema = &content["application/json"]["schema"];
        for token in [READER, SEER] {
            let answer = stage.get(&asked, token).await.json();
            let wrong = errors(&document, schema, &answer);
            assert!(wrong.is_empty(), "{asked}: {wrong:?}");
        }
    }
}
