//! Tags of what a launch and a class create.
//!
//! Source: AWS specification 1.4; DECISIONS D-005 for the launch group's tag.

use std::collections::BTreeMap;

use millwright_api::{Ec2NodeClass, labels, tags as keys};

/// Tag that carries the launch group's id.
pub const LAUNCH_GROUP: &str = "millwright.dev/launch-group";

/// Whether a user's tag belongs to the controller.
#[must_use]
pub fn is_restricted(key: &str) -> bool {
    let cluster = key
        .strip_prefix(keys::CLUSTER_PREFIX)
        .is_some_and(is_cluster_name);
    cluster
        || [
            keys::NODE_POOL,
            keys::EKS_CLUSTER_NAME,
            keys::EC2_NODE_CLASS,
            keys::NODE_CLAIM,
        ]
        .contains(&key)
}

fn is_cluster_name(text: &str) -> bool {
    text.starts_with(|c: char| c.is_ascii_alphanumeric())
        && text
            .chars()
            .all(|c| c.is_ascii_alphanumeric() || c == '-' || c == '_')
}

/// The first user tag of a class that belongs to the controller.
#[must_use]
pub fn restricted(class: &Ec2NodeClass) -> Option<&str> {
    class
        .spec
        .tags
        .keys()
        .map(String::as_str)
        .find(|key| is_restricted(key))
}

/// Tags of everything that a launch creates. The controller's own win over the user's. An
/// instance of no NodePool carries an empty NodePool tag, because IAM conditions ask for it.
#[must_use]
pub fn of_launch(
    class: &Ec2NodeClass,
    class_name: &str,
    cluster: &str,
    node_pool: Option<&str>,
) -> BTreeMap<String, String> {
    let mut tags = class.spec.tags.clone();
    tags.extend([
        (
            format!("{}{cluster}", keys::CLUSTER_PREFIX),
            keys::OWNED.to_owned(),
        ),
        (
            keys::NODE_POOL.to_owned(),
            node_pool.unwrap_or_default().to_owned(),
        ),
        (keys::EC2_NODE_CLASS.to_owned(), class_name.to_owned()),
        (keys::EKS_CLUSTER_NAME.to_owned(), cluster.to_owned()),
    ]);
    tags
}

/// Tags of the class's instance profile.
#[must_use]
pub fn of_instance_profile(
    class: &Ec2NodeClass,
    class_name: &str,
    cluster: &str,
    region: &str,
) -> BTreeMap<String, String> {
    let mut tags = class.spec.tags.clone();
    tags.extend([
        (
            format!("{}{cluster}", keys::CLUSTER_PREFIX),
            keys::OWNED.to_owned(),
        ),
        (keys::EKS_CLUSTER_NAME.to_owned(), cluster.to_owned()),
        (keys::EC2_NODE_CLASS.to_owned(), class_name.to_owned()),
        (labels::REGION.to_owned(), region.to_owned()),
    ]);
    tags
}

#[cfg(test)]
mod tests {
    use millwright_api::Ec2NodeClassSpec;

    use super::*;

    fn class(tags: &[(&str, &str)]) -> Ec2NodeClass {
        let tags = tags
            .iter()
            .map(|(k, v)| ((*k).to_owned(), (*v).to_owned()))
            .collect();
        Ec2NodeClass::new(
            "default",
            Ec2NodeClassSpec {
                tags,
                ..Default::default()
            },
        )
    }

    #[test]
    fn the_controller_s_keys_are_restricted_as_whole_keys() {
        for (key, restricted) in [
            ("kubernetes.io/cluster/demo", true),
            ("kubernetes.io/cluster/1_a-b", true),
            ("kubernetes.io/cluster/", false),
            ("kubernetes.io/cluster/-x", false),
            ("kubernetes.io/cluster/a.b", false),
            ("karpenter.sh/nodepool", true),
            ("karpenter.sh/nodepools", false),
            ("karpenter.sh/nodeclaim", true),
            ("karpenter.k8s.aws/ec2nodeclass", true),
            ("eks:eks-cluster-name", true),
            ("Name", false),
            ("team", false),
        ] {
            assert_eq!(is_restricted(key), restricted, "{key}");
        }
        assert_eq!(
            restricted(&class(&[("a", "b"), ("karpenter.sh/nodepool", "x")])),
            Some("karpenter.sh/nodepool")
        );
    }

    #[test]
    fn launch_tags_name_cluster_pool_and_class_and_keep_the_user_s() {
        let tags = of_launch(
            &class(&[("team", "a"), ("Name", "mine")]),
            "default",
            "demo",
            None,
        );
        let expected = [
            ("Name", "mine"),
            ("eks:eks-cluster-name", "demo"),
            ("karpenter.k8s.aws/ec2nodeclass", "default"),
            ("karpenter.sh/nodepool", ""),
            ("kubernetes.io/cluster/demo", "owned"),
            ("team", "a"),
        ];
        let found: Vec<_> = tags.iter().map(|(k, v)| (k.as_str(), v.as_str())).collect();
        assert_eq!(found, expected);
    }
}
