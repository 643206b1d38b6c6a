//! What EC2's error codes mean.
//!
//! Source: AWS specification 22.

use crate::error::{CloudError, CloudErrorKind};

/// Launch errors that say "this offering has nothing for you now".
const UNFULFILLABLE: &[&str] = &[
    "InsufficientFreeAddressesInSubnet",
    "InsufficientInstanceCapacity",
    "MaxFleetCountExceeded",
    "MaxSpotInstanceCountExceeded",
    "ReservationCapacityExceeded",
    "UnfulfillableCapacity",
    "Unsupported",
    "VcpuLimitExceeded",
];

const NOT_FOUND: &[&str] = &[
    "InvalidCapacityReservationId.NotFound",
    "InvalidInstanceID.NotFound",
    "InvalidLaunchTemplateId.NotFound",
    LAUNCH_TEMPLATE_NOT_FOUND,
    "NoSuchEntity",
    "ParameterNotFound",
    "QueueDoesNotExist",
];

/// The launch template was deleted behind our back.
pub const LAUNCH_TEMPLATE_NOT_FOUND: &str = "InvalidLaunchTemplateName.NotFoundException";
/// Somebody was faster; the content-addressed template is the one that was wanted.
pub const LAUNCH_TEMPLATE_EXISTS: &str = "InvalidLaunchTemplateName.AlreadyExistsException";
/// The permissions suffice.
pub const DRY_RUN_OK: &str = "DryRunOperation";
/// The account has no role for Spot, and we may not make it.
pub const SPOT_ROLE_MISSING: &str = "AuthFailure.ServiceLinkedRoleCreationNotPermitted";
/// A subnet has no addresses left.
pub const SUBNET_EXHAUSTED: &str = "InsufficientFreeAddressesInSubnet";
/// A client token came back with other parameters.
pub const TOKEN_MISMATCH: &str = "IdempotentParameterMismatch";

/// Whether a launch error means that the offering is out of stock.
#[must_use]
pub fn is_unfulfillable(code: &str) -> bool {
    UNFULFILLABLE.contains(&code)
}

/// Whether the thing named does not exist.
#[must_use]
pub fn is_not_found(code: &str) -> bool {
    NOT_FOUND.contains(&code)
}

/// Whether the call was one too many.
#[must_use]
pub fn is_throttle(code: &str) -> bool {
    matches!(
        code,
        "RequestLimitExceeded"
            | "Throttling"
            | "ThrottlingException"
            | "ThrottledException"
            | "TooManyRequestsException"
            | "RequestThrottled"
            | "RequestThrottledException"
            | "SlowDown"
            | "EC2ThrottledException"
    )
}

/// Whether the credentials do not allow the call.
#[must_use]
pub fn is_unauthorized(code: &str) -> bool {
    matches!(
        code,
        "UnauthorizedOperation"
            | "AccessDenied"
            | "AccessDeniedException"
            | "AuthFailure"
            | "InvalidClientTokenId"
            | "ExpiredToken"
            | "ExpiredTokenException"
            | "UnrecognizedClientException"
    )
}

/// Reason and message for people, from the full text of a launch error (`code: message`). The first
/// row that matches wins.
#[must_use]
pub fn explain(text: &str) -> (&'static str, &'static str) {
    if text.contains(SPOT_ROLE_MISSING) {
        return (
            "SpotSLRCreationFailed",
            "no permission to create the Spot service-linked role",
        );
    }
    if ["UnauthorizedOperation", "AccessDenied", "AuthFailure"]
        .iter()
        .any(|c| text.contains(c))
    {
        return unauthorized(text);
    }
    if text.contains("InvalidParameter") && text.contains("belong to different networks") {
        return (
            "SecurityGroupSubnetVPCMismatch",
            "security groups and subnets must be in the same VPC",
        );
    }
    ROWS.iter().find(|(part, _, _)| text.contains(part)).map_or(
        ("LaunchFailed", "instance launch failed"),
        |(_, reason, message)| (reason, message),
    )
}

fn unauthorized(text: &str) -> (&'static str, &'static str) {
    if text.contains("with an explicit deny in a permissions boundary") {
        (
            "Unauthorized",
            "user is not authorized to perform this operation due to a permission boundary",
        )
    } else if text.contains("with an explicit deny in a service control policy") {
        (
            "Unauthorized",
            "user is not authorized to perform this operation due to a service control policy",
        )
    } else if text.contains("Not authorized for images") {
        (
            "AMIAuthorizationFailure",
            "user is not authorized to use the AMI",
        )
    } else {
        (
            "Unauthorized",
            "user is not authorized to perform this operation because no identity-based policy allows it",
        )
    }
}

/// Part of the text, reason, message.
const ROWS: &[(&str, &str, &str)] = &[
    (
        "iamInstanceProfile.name is invalid",
        "InstanceProfileNameInvalid",
        "instance profile name used from EC2NodeClass status does not exist",
    ),
    (
        "InvalidLaunchTemplateId.NotFound",
        "LaunchTemplateNotFound",
        "launch template not found",
    ),
    (
        "User data is limited to",
        "UserDataSizeLimitExceeded",
        "user data is larger than EC2 allows",
    ),
    (
        "InvalidAMIID.Malformed",
        "InvalidAMIID",
        "AMI id is malformed",
    ),
    (
        "InvalidAMIID.NotFound",
        "AMINotFound",
        "AMI does not exist or may not be used",
    ),
    (
        "RequestLimitExceeded",
        "RequestLimitExceeded",
        "request limit exceeded",
    ),
    (
        "InternalError",
        "InternalError",
        "EC2 had an internal error",
    ),
    (
        "not eligible for Free Tier",
        "FreeTierIneligible",
        "instance type is not eligible for the free tier",
    ),
    (
        "MaxFleetCountExceeded",
        "FleetQuotaExceeded",
        "fleet quota of the account is used up",
    ),
    (
        "PendingVerification",
        "AccountPendingVerification",
        "account is waiting for verification",
    ),
    (
        "MaxSpotInstanceCountExceeded",
        "SpotQuotaExceeded",
        "Spot quota of the account is used up",
    ),
    (
        "VcpuLimitExceeded",
        "VCPULimitExceeded",
        "vCPU quota of the account is used up",
    ),
    (
        "InsufficientFreeAddressesInSubnet",
        "InsufficientFreeAddressesInSubnet",
        "subnet has no free addresses",
    ),
    // Differs: a reason of its own in place of the general one.
    (
        "InsufficientInstanceCapacity",
        "InsufficientInstanceCapacity",
        "no capacity for the instance type in the zone",
    ),
];

/// An error of a call as the port reports it. `operation` names API and thing; `server_fault`
/// tells that the service, not the request, was at fault.
#[must_use]
pub fn cloud_error(operation: &str, code: &str, message: &str, server_fault: bool) -> CloudError {
    let text = format!("{code}: {message}");
    let (reason, _) = explain(&text);
    let kind = if is_throttle(code) {
        CloudErrorKind::Throttled
    } else if is_unfulfillable(code) || code == SPOT_ROLE_MISSING {
        CloudErrorKind::InsufficientCapacity
    } else if is_not_found(code) {
        CloudErrorKind::NodeClaimNotFound
    } else if is_unauthorized(code) {
        CloudErrorKind::Unauthorized
    } else if server_fault || code.is_empty() {
        CloudErrorKind::Transient
    } else {
        CloudErrorKind::Create
    };
    CloudError::new(kind, reason, format!("{operation}: {text}"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_row_of_the_table_gives_its_reason() {
        for (text, reason) in [
            (
                "AuthFailure.ServiceLinkedRoleCreationNotPermitted: x",
                "SpotSLRCreationFailed",
            ),
            (
                "UnauthorizedOperation: with an explicit deny in a permissions boundary",
                "Unauthorized",
            ),
            (
                "AccessDenied: Not authorized for images: [ami-1]",
                "AMIAuthorizationFailure",
            ),
            ("AuthFailure: x", "Unauthorized"),
            (
                "InvalidParameter: Security group sg-1 and subnet subnet-1 belong to different networks.",
                "SecurityGroupSubnetVPCMismatch",
            ),
            (
                "InvalidParameterValue: Value (x) for parameter iamInstanceProfile.name is invalid.",
                "InstanceProfileNameInvalid",
            ),
            (
                "InvalidUserData.Malformed: User data is limited to 16384 bytes",
                "UserDataSizeLimitExceeded",
            ),
            ("InvalidAMIID.NotFound: x", "AMINotFound"),
            ("MaxFleetCountExceeded: x", "FleetQuotaExceeded"),
            ("MaxSpotInstanceCountExceeded: x", "SpotQuotaExceeded"),
            ("VcpuLimitExceeded: x", "VCPULimitExceeded"),
            (
                "InsufficientFreeAddressesInSubnet: x",
                "InsufficientFreeAddressesInSubnet",
            ),
            ("SomethingElse: x", "LaunchFailed"),
        ] {
            assert_eq!(explain(text).0, reason, "{text}");
        }
    }

    #[test]
    fn a_denial_names_the_policy_that_denied() {
        let (_, message) =
            explain("UnauthorizedOperation: with an explicit deny in a service control policy");
        assert!(message.ends_with("service control policy"));
    }

    #[test]
    fn codes_decide_the_reaction() {
        for (code, fault, kind) in [
            ("RequestLimitExceeded", true, CloudErrorKind::Throttled),
            (
                "InsufficientInstanceCapacity",
                false,
                CloudErrorKind::InsufficientCapacity,
            ),
            (
                "VcpuLimitExceeded",
                false,
                CloudErrorKind::InsufficientCapacity,
            ),
            (
                "InvalidInstanceID.NotFound",
                false,
                CloudErrorKind::NodeClaimNotFound,
            ),
            ("UnauthorizedOperation", false, CloudErrorKind::Unauthorized),
            ("InternalError", true, CloudErrorKind::Transient),
            ("", false, CloudErrorKind::Transient),
            ("InvalidParameterValue", false, CloudErrorKind::Create),
        ] {
            assert_eq!(cloud_error("ec2 x", code, "m", fault).kind, kind, "{code}");
        }
        let error = cloud_error("ec2 TerminateInstances i-1", "AuthFailure", "no", false);
        assert_eq!(
            error.to_string(),
            "ec2 TerminateInstances i-1: AuthFailure: no"
        );
    }
}
