//! Collecting NodeClaims into launch groups (D-005).
//!
//! The executor writes `millwright.dev/launch-group: ID/SIZE` on the NodeClaims of one plan that
//! have equal launch parameters. The collector holds members back until all that are still to be
//! launched were seen, or until a bounded wait is over, and then hands them out together.

use std::collections::BTreeMap;

use millwright_model::{Name, NodeClaimName, Span, Timestamp};

/// Annotation that names the group of a NodeClaim.
pub const ANNOTATION: &str = "millwright.dev/launch-group";

/// How long members wait for the rest of their group. NodeClaims of one plan are written within a
/// second; a member that takes longer is launched alone, which costs one more call.
pub const WAIT_MAX: Span = Span::from_secs(2);

/// Groups that are waiting at the same time; beyond that members are launched at once.
const GROUPS_MAX: usize = 4_096;

/// A parsed group annotation.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct GroupTag {
    /// Stable id.
    pub id: Name,
    /// Number of NodeClaims that were written with it, at least 1.
    pub size: usize,
}

impl GroupTag {
    /// Reads `ID/SIZE`. A NodeClaim without or with an unreadable annotation is a group of its
    /// own, named by its uid.
    #[must_use]
    pub fn parse(annotation: Option<&str>, uid: &Name) -> Self {
        annotation
            .and_then(|text| text.rsplit_once('/'))
            .and_then(|(id, size)| Some((id, size.parse::<usize>().ok()?)))
            .filter(|(id, size)| !id.is_empty() && *size > 0)
            .map_or_else(
                || Self {
                    id: uid.clone(),
                    size: 1,
                },
                |(id, size)| Self {
                    id: id.into(),
                    size,
                },
            )
    }
}

/// A group that is complete, or has waited long enough.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ReadyGroup {
    /// Its id.
    pub id: Name,
    /// Members to launch together, in order of name, never empty.
    pub members: Vec<NodeClaimName>,
}

#[derive(Debug)]
struct Waiting {
    since: Timestamp,
    members: BTreeMap<NodeClaimName, ()>,
}

/// The collector. Bounded: a group leaves after [`WAIT_MAX`] whether complete or not.
#[derive(Debug, Default)]
pub struct Collector {
    groups: BTreeMap<Name, Waiting>,
}

impl Collector {
    /// Adds a member that is to be launched. `settled` counts the members of the group that need
    /// no launch any more (launched, or gone). Returns the group when it is complete.
    pub fn offer(
        &mut self,
        claim: NodeClaimName,
        tag: &GroupTag,
        settled: usize,
        now: Timestamp,
    ) -> Option<ReadyGroup> {
        if tag.size <= 1 || (self.groups.len() >= GROUPS_MAX && !self.groups.contains_key(&tag.id))
        {
            return Some(ReadyGroup {
                id: tag.id.clone(),
                members: vec![claim],
            });
        }
        let waiting = self
            .groups
            .entry(tag.id.clone())
            .or_insert_with(|| Waiting {
                since: now,
                members: BTreeMap::new(),
            });
        waiting.members.insert(claim, ());
        let complete = waiting.members.len() + settled >= tag.size;
        if complete { self.take(&tag.id) } else { None }
    }

    /// Takes out every group whose wait is over.
    pub fn expired(&mut self, now: Timestamp) -> Vec<ReadyGroup> {
        let over: Vec<Name> = self
            .groups
            .iter()
            .filter(|(_, waiting)| now.since(waiting.since) >= WAIT_MAX)
            .map(|(id, _)| id.clone())
            .collect();
        over.iter().filter_map(|id| self.take(id)).collect()
    }

    /// When the next wait is over, if anything waits.
    #[must_use]
    pub fn next_expiry(&self) -> Option<Timestamp> {
        self.groups
            .values()
            .map(|waiting| waiting.since + WAIT_MAX)
            .min()
    }

    fn take(&mut self, id: &Name) -> Option<ReadyGroup> {
        let waiting = self.groups.remove(id)?;
        Some(ReadyGroup {
            id: id.clone(),
            members: waiting.members.into_keys().collect(),
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::fixtures::{T0, at};

    fn names(group: &ReadyGroup) -> Vec<&str> {
        group.members.iter().map(NodeClaimName::as_str).collect()
    }

    #[test]
    fn annotations_read_back_and_bad_ones_make_a_group_of_one() {
        for (text, id, size) in [
            (Some("abc/3"), "abc", 3),
            (Some("a/b/2"), "a/b", 2),
            (None, "uid", 1),
            (Some("abc"), "uid", 1),
            (Some("abc/0"), "uid", 1),
            (Some("/3"), "uid", 1),
            (Some("abc/x"), "uid", 1),
        ] {
            let tag = GroupTag::parse(text, &"uid".into());
            assert_eq!((&*tag.id, tag.size), (id, size), "{text:?}");
        }
    }

    #[test]
    fn a_group_is_launched_when_its_last_member_is_seen_in_order_of_name() {
        let mut collector = Collector::default();
        let tag = GroupTag {
            id: "g".into(),
            size: 3,
        };
        assert_eq!(collector.offer("c".into(), &tag, 0, T0), None);
        assert_eq!(collector.offer("a".into(), &tag, 0, T0), None);
        assert_eq!(
            collector.offer("a".into(), &tag, 0, T0),
            None,
            "seen twice counts once"
        );
        let group = collector.offer("b".into(), &tag, 0, T0).expect("complete");
        assert_eq!(names(&group), ["a", "b", "c"]);
        assert_eq!(collector.next_expiry(), None);
    }

    #[test]
    fn members_that_need_no_launch_are_not_waited_for() {
        let mut collector = Collector::default();
        let tag = GroupTag {
            id: "g".into(),
            size: 3,
        };
        let group = collector.offer("c".into(), &tag, 2, T0).expect("complete");
        assert_eq!(names(&group), ["c"]);
    }

    #[test]
    fn an_incomplete_group_goes_after_the_wait() {
        let mut collector = Collector::default();
        let tag = GroupTag {
            id: "g".into(),
            size: 3,
        };
        assert_eq!(collector.offer("a".into(), &tag, 0, T0), None);
        assert_eq!(collector.offer("b".into(), &tag, 0, at(1)), None);
        assert!(collector.expired(at(1)).is_empty());
        assert_eq!(collector.next_expiry(), Some(at(2)));
        let groups = collector.expired(at(2));
        assert_eq!(groups.len(), 1);
        assert_eq!(names(&groups[0]), ["a", "b"]);
        assert!(collector.expired(at(3)).is_empty());
    }
}
