//! Garbage: what has lost its owners, pods whose node is gone, and the two finalizers by which a deletion
//! waits for its dependents or lets go of them.

use k8s_openapi::apimachinery::pkg::apis::meta::v1::{ObjectMeta, OwnerReference};
use serde_json::json;

use super::{
    BURST, Decision,
    cluster::{Cluster, Kind},
    pods,
    write::{Target, Write},
};

/// Finalizer of an object that is to outlive its dependents.
const FOREGROUND: &str = "foregroundDeletion";
/// Finalizer of an object whose dependents are to outlive it.
const ORPHAN: &str = "orphan";

/// Whether [`reconcile`] may have something to do: cheap, and asked at every change.
pub(super) fn is_suspect(cluster: &Cluster, kind: Kind, uid: &str) -> bool {
    let Some(meta) = cluster.meta(kind, uid) else {
        return false;
    };
    let is_leaving = meta.deletion_timestamp.is_some();
    is_leaving && (has_finalizer(meta, FOREGROUND) || has_finalizer(meta, ORPHAN))
        || !is_leaving && absent_owners(cluster, meta).is_some()
        || kind == Kind::Pod && missing_node(cluster, uid).is_some()
}

/// Decides about one object.
pub(super) fn reconcile(cluster: &Cluster, kind: Kind, uid: &str) -> Decision {
    let Some(meta) = cluster.meta(kind, uid) else {
        return Decision::default();
    };
    let target = Target::new(kind, meta);
    if kind == Kind::Pod
        && let Some(node) = missing_node(cluster, uid)
    {
        return Decision::from(vec![Write::Strand(target, node.to_owned())]);
    }
    if meta.deletion_timestamp.is_some() {
        return Decision::from(release(cluster, target, meta));
    }
    let Some(owners) = absent_owners(cluster, meta) else {
        return Decision::default();
    };
    let is_certain = |owner: &&OwnerReference| {
        Kind::of(owner).is_some_and(|kind| cluster.was_deleted(kind, &owner.uid))
    };
    let write = if owners.iter().all(is_certain) {
        Write::Delete(target)
    } else {
        Write::Collect(target, owners.into_iter().cloned().collect())
    };
    Decision::from(vec![write])
}

fn has_finalizer(meta: &ObjectMeta, name: &str) -> bool {
    meta.finalizers.iter().flatten().any(|own| own == name)
}

/// Whether an owner holds its dependents: not when it is on its way out and waits for them.
pub(super) fn holds(owner: &ObjectMeta) -> bool {
    owner.deletion_timestamp.is_none() || !has_finalizer(owner, FOREGROUND)
}

/// The owners, when there are some, and none is known to exist.
fn absent_owners<'a>(cluster: &Cluster, meta: &'a ObjectMeta) -> Option<Vec<&'a OwnerReference>> {
    let owners: Vec<&OwnerReference> = meta.owner_references.iter().flatten().collect();
    let is_absent = |owner: &&OwnerReference| {
        Kind::of(owner).is_some_and(|kind| match cluster.meta(kind, &owner.uid) {
            None => true,
            Some(owner) => !holds(owner),
        })
    };
    (!owners.is_empty() && owners.iter().all(is_absent)).then_some(owners)
}

/// The node that the pod is bound to, when it does not exist.
fn missing_node<'a>(cluster: &'a Cluster, uid: &str) -> Option<&'a str> {
    let node = cluster.pods.get(uid).and_then(|pod| pods::node_of(pod))?;
    (!cluster.has_node(node)).then_some(node)
}

/// What an object that is on its way out needs before the API server removes it.
fn release(cluster: &Cluster, target: Target, meta: &ObjectMeta) -> Vec<Write> {
    let dependents = cluster.dependents(&target.uid);
    let without = |finalizer: &str| {
        let others = meta.finalizers.iter().flatten();
        let others: Vec<&String> = others.filter(|own| *own != finalizer).collect();
        json!({"metadata": {"finalizers": others, "resourceVersion": meta.resource_version}})
    };
    if has_finalizer(meta, ORPHAN) {
        if dependents.is_empty() {
            return vec![Write::Patch(target, without(ORPHAN))];
        }
        let let_go = |(kind, dependent): (Kind, &ObjectMeta)| {
            let others = dependent.owner_references.iter().flatten();
            let others: Vec<_> = others.filter(|owner| owner.uid != target.uid).collect();
            let body = json!({"metadata": {
                "ownerReferences": others, "resourceVersion": dependent.resource_version}});
            Write::Patch(Target::new(kind, dependent), body)
        };
        return dependents.into_iter().take(BURST).map(let_go).collect();
    }
    if has_finalizer(meta, FOREGROUND) {
        let blocks = |dependent: &ObjectMeta| {
            let mut owners = dependent.owner_references.iter().flatten();
            owners.any(|owner| owner.uid == target.uid && owner.block_owner_deletion == Some(true))
        };
        if !dependents.iter().any(|(_, dependent)| blocks(dependent)) {
            return vec![Write::Patch(target, without(FOREGROUND))];
        }
        let unheld = dependents.into_iter().filter(|(_, dependent)| {
            dependent.deletion_timestamp.is_none() && absent_owners(cluster, dependent).is_some()
        });
        let deletions = unheld.map(|(kind, dependent)| Write::Delete(Target::new(kind, dependent)));
        return deletions.take(BURST).collect();
    }
    Vec::new()
}

#[cfg(test)]
mod tests {
    use k8s_openapi::api::{
        apps::v1::ReplicaSet,
        core::v1::{Node, Pod},
    };
    use kube::runtime::watcher::Event;
    use serde_json::Value;

    use super::super::cluster::Watched;
    use super::*;

    fn observe<K: Watched>(cluster: &mut Cluster, wrap: fn(K) -> Event<K>, object: &Value) {
        let object = serde_json::from_value(object.clone()).expect("an object");
        cluster.observe(wrap(object), &mut Vec::new());
    }

    fn set(more: &Value) -> Value {
        let mut set = json!({"metadata": {"name": "set", "uid": "set"}, "spec": {"selector": {}}});
        json_patch::merge(&mut set, more);
        set
    }

    /// A cluster with the set, its pod on the node `n`, and that node.
    fn cluster(set: &Value) -> Cluster {
        let mut cluster = Cluster::default();
        observe::<ReplicaSet>(&mut cluster, Event::Apply, set);
        observe::<Node>(
            &mut cluster,
            Event::Apply,
            &json!({"metadata": {"name": "n", "uid": "n"}}),
        );
        let owner = json!({"apiVersion": "apps/v1", "kind": "ReplicaSet", "name": "set", "uid": "set",
            "controller": true, "blockOwnerDeletion": true});
        let pod = json!({"metadata": {"name": "pod", "uid": "pod", "ownerReferences": [owner]},
            "spec": {"containers": [], "nodeName": "n"}});
        observe::<Pod>(&mut cluster, Event::Apply, &pod);
        cluster
    }

    fn of_pod(cluster: &Cluster) -> Vec<Write> {
        reconcile(cluster, Kind::Pod, "pod").writes
    }

    #[test]
    fn a_pod_goes_with_its_owner_or_its_node() {
        let mut with_all = cluster(&set(&json!({})));
        assert!(!is_suspect(&with_all, Kind::Pod, "pod") && of_pod(&with_all).is_empty());
        observe::<ReplicaSet>(&mut with_all, Event::Delete, &set(&json!({})));
        assert!(is_suspect(&with_all, Kind::Pod, "pod"));
        assert!(matches!(of_pod(&with_all)[..], [Write::Delete(_)]));

        let never_seen = cluster(&set(&json!({"metadata": {"uid": "other"}})));
        let writes = of_pod(&never_seen);
        assert!(
            matches!(writes[..], [Write::Collect(..)]),
            "a watch may be behind: {writes:?}"
        );

        let mut without_node = cluster(&set(&json!({})));
        let node = json!({"metadata": {"name": "n", "uid": "n"}});
        observe::<Node>(&mut without_node, Event::Delete, &node);
        assert!(matches!(of_pod(&without_node)[..], [Write::Strand(..)]));
    }

    #[test]
    fn finalizers_wait_for_dependents_or_let_go_of_them() {
        let leaving = |finalizer: &str| {
            set(
                &json!({"metadata": {"deletionTimestamp": "2026-01-01T00:00:00Z",
                "finalizers": [finalizer, "other"]}}),
            )
        };
        let of_set = |cluster: &Cluster| reconcile(cluster, Kind::ReplicaSet, "set").writes;
        let pod = json!({"metadata": {"name": "pod", "uid": "pod"}});
        for (finalizer, deletes) in [(FOREGROUND, true), (ORPHAN, false)] {
            let mut cluster = cluster(&leaving(finalizer));
            match &of_set(&cluster)[..] {
                [Write::Delete(target)] => assert!(deletes && target.uid == "pod"),
                [Write::Patch(target, body)] => {
                    assert!(!deletes && target.uid == "pod");
                    assert_eq!(body["metadata"]["ownerReferences"], json!([]));
                }
                other => panic!("{other:?}"),
            }
            observe::<Pod>(&mut cluster, Event::Delete, &pod);
            match &of_set(&cluster)[..] {
                [Write::Patch(target, body)] => {
                    assert_eq!(target.uid, "set");
                    assert_eq!(body["metadata"]["finalizers"], json!(["other"]));
                }
                other => panic!("{other:?}"),
            }
        }
    }
}
