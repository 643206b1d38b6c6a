//! The SDK's clients, with one HTTP client and one set of credentials between them.

use std::time::Duration;

use aws_config::{
    BehaviorVersion, ConfigLoader, Region, retry::RetryConfig, timeout::TimeoutConfig,
};
use aws_credential_types::Credentials;
use aws_smithy_http_client::{
    Builder,
    tls::{Provider, rustls_provider::CryptoMode},
};

/// A call that takes longer is given up; EC2's slowest (a large CreateFleet) takes seconds.
const ATTEMPT_TIMEOUT: Duration = Duration::from_secs(30);
/// Attempts of calls that the SDK repeats by itself.
const ATTEMPTS: u32 = 4;

/// All clients.
#[derive(Clone, Debug)]
pub(crate) struct Clients {
    pub(crate) ec2: aws_sdk_ec2::Client,
    /// For calls that are paced here and carry a token: no repetition behind our back.
    pub(crate) ec2_once: aws_sdk_ec2::Client,
    pub(crate) ssm: aws_sdk_ssm::Client,
    pub(crate) iam: aws_sdk_iam::Client,
    pub(crate) eks: aws_sdk_eks::Client,
    pub(crate) pricing: aws_sdk_pricing::Client,
    pub(crate) region: String,
}

impl Clients {
    /// Clients by the environment: web identity, pod identity, instance metadata or keys; region and
    /// endpoint by the standard variables.
    pub(crate) async fn from_environment() -> Self {
        Self::load(aws_config::defaults(BehaviorVersion::latest())).await
    }

    /// Clients of another endpoint that serves all of AWS, with keys that it does not check.
    pub(crate) async fn of_endpoint(url: &str, region: &str) -> Self {
        let keys = Credentials::new("simulated", "simulated", None, None, "simulated");
        let loader = aws_config::defaults(BehaviorVersion::latest())
            .endpoint_url(url)
            .region(Region::new(region.to_owned()))
            .credentials_provider(keys);
        Self::load(loader).await
    }

    async fn load(loader: ConfigLoader) -> Self {
        let http = Builder::new()
            .tls_provider(Provider::Rustls(CryptoMode::Ring))
            .build_https();
        let timeouts = TimeoutConfig::builder()
            .operation_attempt_timeout(ATTEMPT_TIMEOUT)
            .connect_timeout(Duration::from_secs(5))
            .build();
        let config = loader
            .http_client(http)
            .timeout_config(timeouts)
            .retry_config(RetryConfig::standard().with_max_attempts(ATTEMPTS))
            .load()
            .await;
        let region = config
            .region()
            .map_or_else(|| "us-east-1".to_owned(), ToString::to_string);
        let once = aws_sdk_ec2::config::Builder::from(&config)
            .retry_config(RetryConfig::disabled())
            .build();
        let pricing = aws_sdk_pricing::config::Builder::from(&config)
            .region(Region::new(millwright_cloud::pricing::api_region(&region)))
            .build();
        Self {
            ec2: aws_sdk_ec2::Client::new(&config),
            ec2_once: aws_sdk_ec2::Client::from_conf(once),
            ssm: aws_sdk_ssm::Client::new(&config),
            iam: aws_sdk_iam::Client::new(&config),
            eks: aws_sdk_eks::Client::new(&config),
            pricing: aws_sdk_pricing::Client::from_conf(pricing),
            region,
        }
    }
}
