//! Errors of the SDK to errors of the port.

use std::{error::Error, sync::Arc};

use aws_sdk_ec2::error::ProvideErrorMetadata;
use aws_smithy_runtime_api::client::result::SdkError;
use millwright_cloud::{CloudError, CloudErrorKind, ec2_errors};

/// The service's code, empty when the service did not answer.
pub(crate) fn code<E: ProvideErrorMetadata, R>(error: &SdkError<E, R>) -> String {
    match error {
        SdkError::ServiceError(service) => service.err().code().unwrap_or_default().to_owned(),
        _ => String::new(),
    }
}

/// The error of a call, by what it means.
pub(crate) fn cloud<E, R>(what: &str, error: SdkError<E, R>) -> CloudError
where
    E: ProvideErrorMetadata + Error + Send + Sync + 'static,
    R: std::fmt::Debug + Send + Sync + 'static,
{
    let code = code(&error);
    let text = match &error {
        SdkError::ServiceError(service) => {
            format!("{code}: {}", service.err().message().unwrap_or_default())
        }
        other => other.to_string(),
    };
    let (reason, _) = ec2_errors::explain(&text);
    let kind = if code.is_empty() {
        CloudErrorKind::Transient
    } else if ec2_errors::is_throttle(&code) {
        CloudErrorKind::Throttled
    } else if ec2_errors::is_not_found(&code) {
        CloudErrorKind::NodeClaimNotFound
    } else if ec2_errors::is_unauthorized(&code) {
        CloudErrorKind::Unauthorized
    } else if ec2_errors::is_unfulfillable(&code) {
        CloudErrorKind::InsufficientCapacity
    } else if [
        "InternalError",
        "InternalFailure",
        "ServiceUnavailable",
        "Unavailable",
    ]
    .contains(&code.as_str())
    {
        CloudErrorKind::Transient
    } else {
        CloudErrorKind::Create
    };
    CloudError {
        kind,
        reason,
        message: format!("{what}: {text}"),
        source: Some(Arc::new(error)),
    }
}

/// An answer that lacks what it must have.
pub(crate) fn incomplete(what: &str) -> CloudError {
    CloudError::new(
        CloudErrorKind::Bug,
        "UnexpectedAnswer",
        format!("{what}: the answer is incomplete"),
    )
}
