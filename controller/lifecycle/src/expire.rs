//! Expiration: NodeClaims older than their `expireAfter`.
//!
//! Forceful: no budget, no protection, no replacement beforehand; only the drain is orderly.
//!
//! Source: disruption specification 1.10.

use millwright_model::{Span, Timestamp};

use crate::observed::ObservedClaim;

/// What expiration asks for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Expiration {
    /// `Never`, or deleting already.
    Exempt,
    /// Look again after this long.
    Wait(Span),
    /// Delete.
    Expired,
}

/// Judges a claim by the value frozen in its own spec.
#[must_use]
pub fn judge(claim: &ObservedClaim, now: Timestamp) -> Expiration {
    let Some(expire_after) = claim.expire_after else {
        return Expiration::Exempt;
    };
    if claim.deleting_since.is_some() {
        return Expiration::Exempt;
    }
    let expiry = claim.created_at + expire_after;
    if now < expiry {
        Expiration::Wait(expiry.since(now))
    } else {
        Expiration::Expired
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::fixtures::{T0, at, claim};

    #[test]
    fn a_claim_expires_at_its_age_and_waits_exactly_until_then() {
        for (expire_after, seconds, expected) in [
            (None, 1_000_000, Expiration::Exempt),
            (Some(60), 59, Expiration::Wait(Span::from_secs(1))),
            (Some(60), 60, Expiration::Expired),
            (Some(0), 0, Expiration::Expired),
        ] {
            let claim = ObservedClaim {
                expire_after: expire_after.map(Span::from_secs),
                ..claim(&[])
            };
            assert_eq!(
                judge(&claim, at(seconds)),
                expected,
                "{expire_after:?} {seconds}"
            );
        }
    }

    #[test]
    fn a_deleting_claim_does_not_expire_again() {
        let expire_after = Some(Span::from_secs(1));
        let claim = ObservedClaim {
            expire_after,
            deleting_since: Some(T0),
            ..claim(&[])
        };
        assert_eq!(judge(&claim, at(100)), Expiration::Exempt);
    }
}
