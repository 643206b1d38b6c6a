//! Machine images and the public parameters that point to them.
//!
//! A release makes one image for every family, architecture and variant that EKS publishes,
//! and for every Kubernetes version; the "latest" parameters then point to it, and older
//! images stay under their own names.

use std::collections::BTreeMap;
use std::sync::Arc;

use super::clock::iso;
use super::id::{ec2_id, hash, mix};
use super::tags::Tags;

/// Owners of the published images, as EKS documents them.
const OWNER_EKS: &str = "602401143452";
const OWNER_BOTTLEROCKET: &str = "092701018921";
const OWNER_WINDOWS: &str = "801119661308";

/// Kubernetes minor versions (1.x) that images are published for.
const MINORS: std::ops::RangeInclusive<u32> = 30..=36;
/// The last minor version with AL2 images, and the first with Windows Server 2025.
const AL2_LAST: u32 = 32;
const WINDOWS_2025_FIRST: u32 = 35;

/// A machine image.
#[derive(Debug, Clone)]
pub struct Image {
    /// `ami-...`.
    pub id: String,
    /// Unique per owner.
    pub name: String,
    /// In EC2's words: `x86_64`, `arm64`.
    pub architecture: &'static str,
    /// Account.
    pub owner_id: String,
    /// `amazon` for published ones.
    pub owner_alias: Option<&'static str>,
    /// When it was made, milliseconds since the epoch.
    pub created_ms: u64,
    /// From when on it counts as deprecated.
    pub deprecated_ms: Option<u64>,
    /// Windows.
    pub windows: bool,
    /// Tags.
    pub tags: Tags,
}

impl Image {
    pub(crate) fn root_device(&self) -> &'static str {
        if self.windows {
            "/dev/sda1"
        } else {
            "/dev/xvda"
        }
    }

    pub(crate) fn creation_date(&self) -> String {
        iso(self.created_ms)
    }
}

/// A value of the parameter store.
#[derive(Debug, Clone)]
pub(crate) struct Parameter {
    pub(crate) value: String,
    pub(crate) version: u64,
    pub(crate) modified_ms: u64,
}

/// Images and parameters of the account and of AWS.
#[derive(Debug, Default)]
pub(crate) struct Images {
    pub(crate) by_id: BTreeMap<String, Arc<Image>>,
    pub(crate) parameters: BTreeMap<String, Parameter>,
    seed: u64,
}

/// One publication of all families.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Release<'a> {
    /// `20260801`: the version of the Amazon Linux images is `v20260801`.
    pub(crate) date: &'a str,
    /// `1.50.0`.
    pub(crate) bottlerocket: &'a str,
    /// When, milliseconds since the epoch.
    pub(crate) at_ms: u64,
}

/// An image to be published: its name, architecture, owner and parameters.
struct Draft {
    name: String,
    architecture: &'static str,
    owner: &'static str,
    paths: Vec<String>,
}

impl Images {
    /// Two releases, ten and three weeks old.
    pub(crate) fn new(seed: u64, now_ms: u64) -> Self {
        const WEEK_MS: u64 = 7 * 86_400_000;
        let mut images = Self {
            seed,
            ..Self::default()
        };
        for (date, bottlerocket, weeks) in [("20260718", "1.49.0", 10), ("20260905", "1.51.0", 3)] {
            let at_ms = now_ms.saturating_sub(weeks * WEEK_MS);
            images.publish(Release {
                date,
                bottlerocket,
                at_ms,
            });
        }
        images
    }

    /// Publishes a release; the "latest" parameters point to it from now on.
    pub(crate) fn publish(&mut self, release: Release<'_>) {
        for minor in MINORS {
            let drafts = [
                amazon_linux_2(minor, release.date),
                amazon_linux_2023(minor, release.date),
                bottlerocket(minor, release.bottlerocket),
                windows(minor, release.date),
            ];
            for draft in drafts.into_iter().flatten() {
                self.add_draft(draft, release.at_ms);
            }
        }
    }

    fn add_draft(&mut self, draft: Draft, at_ms: u64) {
        let id = ec2_id("ami", mix(self.seed ^ hash(&draft.name)));
        for path in draft.paths {
            self.put_parameter(&path, &id, at_ms);
        }
        let image = Image {
            id: id.clone(),
            architecture: draft.architecture,
            owner_id: draft.owner.to_owned(),
            owner_alias: Some("amazon"),
            created_ms: at_ms,
            // EKS lets images run out two years after their release.
            deprecated_ms: Some(at_ms + 2 * 365 * 86_400_000),
            windows: draft.owner == OWNER_WINDOWS,
            tags: Tags::new(),
            name: draft.name,
        };
        self.by_id.insert(id, Arc::new(image));
    }

    pub(crate) fn put_parameter(&mut self, path: &str, value: &str, now_ms: u64) {
        let version = self
            .parameters
            .get(path)
            .map_or(1, |known| known.version + 1);
        let parameter = Parameter {
            value: value.to_owned(),
            version,
            modified_ms: now_ms,
        };
        self.parameters.insert(path.to_owned(), parameter);
    }
}

/// The paths of an image: under its own name, and as the recommended one.
fn eks_paths(minor: u32, family: &str, name: &str) -> Vec<String> {
    ["recommended", name]
        .map(|which| format!("/aws/service/eks/optimized-ami/1.{minor}/{family}/{which}/image_id"))
        .to_vec()
}

fn amazon_linux_2(minor: u32, date: &str) -> Vec<Draft> {
    if minor > AL2_LAST {
        return Vec::new();
    }
    let draft = |prefix: &str, family: &str, architecture| {
        let name = format!("{prefix}-1.{minor}-v{date}");
        let paths = eks_paths(minor, family, &name);
        Draft {
            name,
            architecture,
            owner: OWNER_EKS,
            paths,
        }
    };
    vec![
        draft("amazon-eks-node", "amazon-linux-2", "x86_64"),
        draft("amazon-eks-arm64-node", "amazon-linux-2-arm64", "arm64"),
        draft("amazon-eks-gpu-node", "amazon-linux-2-gpu", "x86_64"),
    ]
}

fn amazon_linux_2023(minor: u32, date: &str) -> Vec<Draft> {
    let variants = [
        ("x86_64", "standard"),
        ("x86_64", "nvidia"),
        ("x86_64", "neuron"),
        ("arm64", "standard"),
        ("arm64", "nvidia"),
    ];
    variants
        .map(|(architecture, variant)| {
            let name = format!("amazon-eks-node-al2023-{architecture}-{variant}-1.{minor}-v{date}");
            let family = format!("amazon-linux-2023/{architecture}/{variant}");
            Draft {
                paths: eks_paths(minor, &family, &name),
                name,
                architecture,
                owner: OWNER_EKS,
            }
        })
        .into()
}

fn bottlerocket(minor: u32, version: &str) -> Vec<Draft> {
    [
        ("", "x86_64"),
        ("", "arm64"),
        ("-nvidia", "x86_64"),
        ("-nvidia", "arm64"),
    ]
    .map(|(variant, architecture)| {
        let base = format!("/aws/service/bottlerocket/aws-k8s-1.{minor}{variant}/{architecture}");
        Draft {
            name: format!("bottlerocket-aws-k8s-1.{minor}{variant}-{architecture}-v{version}"),
            architecture,
            owner: OWNER_BOTTLEROCKET,
            paths: ["latest", version]
                .map(|which| format!("{base}/{which}/image_id"))
                .into(),
        }
    })
    .into()
}

fn windows(minor: u32, date: &str) -> Vec<Draft> {
    ["2019", "2022", "2025"]
        .into_iter()
        .filter(|year| *year != "2025" || minor >= WINDOWS_2025_FIRST)
        .map(|year| {
            let base = format!("Windows_Server-{year}-English-Core-EKS_Optimized-1.{minor}");
            Draft {
                name: format!("{base}-{date}"),
                architecture: "x86_64",
                owner: OWNER_WINDOWS,
                paths: vec![format!("/aws/service/ami-windows-latest/{base}/image_id")],
            }
        })
        .collect()
}

#[cfg(test)]
mod tests {
    use super::{Images, Release};

    const NOW: u64 = 1_790_000_000_000;

    #[test]
    fn every_parameter_points_to_an_image() {
        let images = Images::new(1, NOW);
        assert!(
            images
                .parameters
                .values()
                .all(|p| images.by_id.contains_key(&p.value))
        );
        let known = |path: &str| images.parameters.contains_key(path);
        assert!(known(
            "/aws/service/eks/optimized-ami/1.34/amazon-linux-2023/arm64/nvidia/recommended/image_id"
        ));
        assert!(known(
            "/aws/service/bottlerocket/aws-k8s-1.34-nvidia/x86_64/1.49.0/image_id"
        ));
        assert!(known(
            "/aws/service/ami-windows-latest/Windows_Server-2022-English-Core-EKS_Optimized-1.34/image_id"
        ));
        assert!(!known(
            "/aws/service/eks/optimized-ami/1.33/amazon-linux-2/recommended/image_id"
        ));
    }

    #[test]
    fn a_release_moves_latest_and_keeps_the_old_images() {
        let mut images = Images::new(1, NOW);
        let path = "/aws/service/bottlerocket/aws-k8s-1.34/arm64/latest/image_id";
        let before = images.parameters[path].value.clone();
        images.publish(Release {
            date: "20261001",
            bottlerocket: "1.52.0",
            at_ms: NOW,
        });
        let after = &images.parameters[path];
        assert_ne!(after.value, before);
        assert_eq!(after.version, 3);
        assert!(images.by_id.contains_key(&before));
    }
}
