//! An error of an AWS API, before it is written in a protocol's form.

use std::borrow::Cow;

/// What an API answers instead of a result.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{code}: {message}")]
pub(crate) struct ApiError {
    /// HTTP status.
    pub(crate) status: u16,
    /// `InvalidParameterValue`.
    pub(crate) code: Cow<'static, str>,
    /// For people.
    pub(crate) message: String,
}

impl ApiError {
    /// An error of the request: status 400.
    pub(crate) fn new(code: impl Into<Cow<'static, str>>, message: impl Into<String>) -> Self {
        Self {
            status: 400,
            code: code.into(),
            message: message.into(),
        }
    }

    pub(crate) fn with_status(mut self, status: u16) -> Self {
        self.status = status;
        self
    }

    /// EC2's and Query's complaint about one value.
    pub(crate) fn value(message: impl Into<String>) -> Self {
        Self::new("InvalidParameterValue", message)
    }

    /// A required parameter is not there.
    pub(crate) fn missing(name: &str) -> Self {
        Self::new(
            "MissingParameter",
            format!("The request must contain the parameter {name}"),
        )
    }

    /// The rehearsal would have succeeded. An error in form only.
    pub(crate) fn dry_run() -> Self {
        Self::new(
            "DryRunOperation",
            "Request would have succeeded, but DryRun flag is set.",
        )
        .with_status(412)
    }

    /// A token bucket is empty.
    pub(crate) fn throttled(service: Service) -> Self {
        match service {
            Service::Ec2 => {
                Self::new("RequestLimitExceeded", "Request limit exceeded.").with_status(503)
            }
            Service::Iam | Service::Sts => Self::new("Throttling", "Rate exceeded"),
            Service::Eks => Self::new("ThrottlingException", "Rate exceeded").with_status(429),
            Service::Ssm | Service::Pricing => Self::new("ThrottlingException", "Rate exceeded"),
            Service::Sqs => Self::new("RequestThrottled", "Rate exceeded").with_status(403),
        }
    }

    /// The caller's policies do not allow the action.
    pub(crate) fn unauthorized(service: Service, action: &str, account: &str) -> Self {
        let what = format!("{}:{action}", service.prefix());
        let who = format!("arn:aws:sts::{account}:assumed-role/controller/simulated");
        match service {
            Service::Ec2 => Self::new(
                "UnauthorizedOperation",
                format!(
                    "You are not authorized to perform this operation. User: {who} is not \
                     authorized to perform: {what} because no identity-based policy allows the \
                     {what} action"
                ),
            ),
            Service::Iam | Service::Sts => Self::new(
                "AccessDenied",
                format!("User: {who} is not authorized to perform: {what}"),
            ),
            _ => Self::new(
                "AccessDeniedException",
                format!("User: {who} is not authorized to perform: {what}"),
            ),
        }
        .with_status(403)
    }
}

/// The services behind the one port.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(crate) enum Service {
    /// Query protocol of EC2, XML answers.
    Ec2,
    /// AWS Query.
    Iam,
    /// AWS Query.
    Sts,
    /// JSON 1.1.
    Ssm,
    /// JSON 1.1.
    Pricing,
    /// JSON 1.0.
    Sqs,
    /// REST with JSON.
    Eks,
}

impl Service {
    /// As in IAM actions: `ec2:CreateFleet`.
    pub(crate) fn prefix(self) -> &'static str {
        match self {
            Self::Ec2 => "ec2",
            Self::Iam => "iam",
            Self::Sts => "sts",
            Self::Ssm => "ssm",
            Self::Pricing => "pricing",
            Self::Sqs => "sqs",
            Self::Eks => "eks",
        }
    }
}
