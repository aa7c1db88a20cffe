//! Region, credentials and HTTP client: who asks, and where.

use aws_config::SdkConfig;
use aws_config::retry::RetryConfig;
use aws_config::timeout::TimeoutConfig;
use aws_sdk_dynamodb::Client;
use aws_sdk_dynamodb::config::{
    BehaviorVersion, Builder, Credentials, ProvideCredentials, Region,
    StalledStreamProtectionConfig,
};
use aws_smithy_http_client::tls::Provider;
use aws_smithy_http_client::tls::rustls_provider::CryptoMode;

use crate::{DynamoOptions, OpenError};

/// Where credentials given by hand say that they come from.
const PROVIDER: &str = "onlyonce";

/// A client, and the region it asks in.
#[derive(Debug, Clone)]
pub(crate) struct Connection {
    pub(crate) client: Client,
    pub(crate) region: String,
}

/// Finds region and credentials. Sends nothing to DynamoDB yet.
pub(crate) async fn connect(options: &DynamoOptions) -> Result<Connection, OpenError> {
    let shared = environment(options).await;
    let region = shared.region().map(ToString::to_string);
    let region = region.ok_or(OpenError::NoRegion)?;
    check_credentials(&shared).await?;
    let config = Builder::from(&shared).build();
    Ok(Connection {
        client: Client::from_conf(config),
        region,
    })
}

/// What the options say, and for the rest the environment.
async fn environment(options: &DynamoOptions) -> SdkConfig {
    let http = aws_smithy_http_client::Builder::new()
        .tls_provider(Provider::Rustls(CryptoMode::Ring))
        .build_https();
    let timeouts = TimeoutConfig::builder()
        .connect_timeout(options.connect_timeout)
        .operation_attempt_timeout(options.request_timeout)
        .build();
    let mut loader = aws_config::defaults(BehaviorVersion::v2026_01_12())
        .http_client(http)
        .timeout_config(timeouts)
        .retry_config(RetryConfig::disabled())
        .stalled_stream_protection(StalledStreamProtectionConfig::disabled());
    if let Some(region) = &options.region {
        loader = loader.region(Region::new(region.clone()));
    }
    if let Some(endpoint) = &options.endpoint {
        loader = loader.endpoint_url(endpoint);
    }
    if let Some(given) = &options.credentials {
        let (key, secret) = (&given.access_key_id, &given.secret_access_key);
        loader = loader.credentials_provider(Credentials::new(key, secret, None, None, PROVIDER));
    }
    loader.load().await
}

async fn check_credentials(shared: &SdkConfig) -> Result<(), OpenError> {
    let missing = |reason: String| OpenError::NoCredentials {
        reason: reason.lines().collect::<Vec<_>>().join(" ").into(),
    };
    let provider = shared
        .credentials_provider()
        .ok_or_else(|| missing("none are configured".into()))?;
    let found = provider.provide_credentials().await;
    found.map(drop).map_err(|error| missing(error.to_string()))
}
