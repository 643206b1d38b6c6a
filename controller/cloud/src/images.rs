//! Images: which parameters an alias stands for, which image wins, which types an image can start.
//!
//! Source: AWS specification 17.

use millwright_api::{
    NodeSelectorRequirement,
    ec2_node_class::{Ami, AmiFamily},
};
use millwright_model::{InstanceType, Name, Operator, Requirement, Requirements, labels};

const GPU: &str = "karpenter.k8s.aws/instance-gpu-count";
const ACCELERATOR: &str = "karpenter.k8s.aws/instance-accelerator-count";

/// Which hardware an image is built for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Variant {
    /// Neither GPU nor accelerator.
    Standard,
    /// With NVIDIA drivers.
    Nvidia,
    /// With Neuron drivers.
    Neuron,
}

impl Variant {
    const fn as_str(self) -> &'static str {
        match self {
            Self::Standard => "standard",
            Self::Nvidia => "nvidia",
            Self::Neuron => "neuron",
        }
    }

    /// What an instance type must be for the image.
    #[must_use]
    pub fn requirements(self) -> Vec<(&'static str, Operator)> {
        match self {
            Self::Standard => vec![
                (ACCELERATOR, Operator::DoesNotExist),
                (GPU, Operator::DoesNotExist),
            ],
            Self::Nvidia => vec![(GPU, Operator::Exists)],
            Self::Neuron => vec![(ACCELERATOR, Operator::Exists)],
        }
    }
}

/// A parameter whose value is an image id.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct AliasPath {
    /// Path in the parameter store.
    pub path: String,
    /// Variants that the image serves.
    pub variants: Vec<Variant>,
}

/// An alias that this version of Kubernetes has no images for.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("alias {alias} has no images for Kubernetes {version}")]
pub struct UnsupportedAlias {
    /// The alias.
    pub alias: String,
    /// Version of the control plane.
    pub version: String,
}

/// The parameters of an alias. `version` is `latest` or a release; `kubernetes` is `1.34`.
///
/// # Errors
/// When the family ended before this version of Kubernetes, or has no alias.
pub fn alias_paths(
    family: AmiFamily,
    version: &str,
    kubernetes: &str,
) -> Result<Vec<AliasPath>, UnsupportedAlias> {
    let minor: u32 = kubernetes
        .split('.')
        .nth(1)
        .and_then(|minor| minor.parse().ok())
        .unwrap_or(0);
    let unsupported = match family {
        AmiFamily::AL2 => minor >= 33,
        AmiFamily::Windows2025 => minor < 35,
        AmiFamily::Custom => true,
        AmiFamily::AL2023
        | AmiFamily::Bottlerocket
        | AmiFamily::Windows2019
        | AmiFamily::Windows2022 => false,
    };
    if unsupported {
        return Err(UnsupportedAlias {
            alias: family.as_str().to_lowercase(),
            version: kubernetes.to_owned(),
        });
    }
    Ok(match family {
        AmiFamily::AL2 => al2_paths(version, kubernetes),
        AmiFamily::AL2023 => al2023_paths(version, kubernetes),
        AmiFamily::Bottlerocket => bottlerocket_paths(version, kubernetes),
        AmiFamily::Windows2019 | AmiFamily::Windows2022 | AmiFamily::Windows2025 => {
            windows_paths(family, kubernetes)
        }
        AmiFamily::Custom => Vec::new(),
    })
}

fn eks_path(kubernetes: &str, tail: &str, variants: &[Variant]) -> AliasPath {
    AliasPath {
        path: format!("/aws/service/eks/optimized-ami/{kubernetes}/{tail}/image_id"),
        variants: variants.to_vec(),
    }
}

fn al2_paths(version: &str, kubernetes: &str) -> Vec<AliasPath> {
    use Variant::{Neuron, Nvidia, Standard};
    // One image serves both kinds of accelerators.
    [
        ("", &[Standard][..]),
        ("-arm64", &[Standard]),
        ("-gpu", &[Neuron, Nvidia]),
    ]
    .into_iter()
    .map(|(kind, variants)| {
        let release = match version {
            "latest" => "recommended".to_owned(),
            _ => format!("amazon-eks{kind}-node-{kubernetes}-{version}"),
        };
        eks_path(
            kubernetes,
            &format!("amazon-linux-2{kind}/{release}"),
            variants,
        )
    })
    .collect()
}

fn al2023_paths(version: &str, kubernetes: &str) -> Vec<AliasPath> {
    use Variant::{Neuron, Nvidia, Standard};
    [
        ("x86_64", Standard),
        ("x86_64", Nvidia),
        ("x86_64", Neuron),
        ("arm64", Standard),
        ("arm64", Nvidia),
    ]
    .into_iter()
    .map(|(arch, variant)| {
        let name = variant.as_str();
        let release = match version {
            "latest" => "recommended".to_owned(),
            _ => format!("amazon-eks-node-al2023-{arch}-{name}-{kubernetes}-{version}"),
        };
        eks_path(
            kubernetes,
            &format!("amazon-linux-2023/{arch}/{name}/{release}"),
            &[variant],
        )
    })
    .collect()
}

fn bottlerocket_paths(version: &str, kubernetes: &str) -> Vec<AliasPath> {
    use Variant::{Neuron, Nvidia, Standard};
    let version = version.strip_prefix('v').unwrap_or(version);
    [
        ("", "x86_64", &[Standard, Neuron][..]),
        ("", "arm64", &[Standard]),
        ("-nvidia", "x86_64", &[Nvidia]),
        ("-nvidia", "arm64", &[Nvidia]),
    ]
    .into_iter()
    .map(|(flavour, arch, variants)| AliasPath {
        path: format!(
            "/aws/service/bottlerocket/aws-k8s-{kubernetes}{flavour}/{arch}/{version}/image_id"
        ),
        variants: variants.to_vec(),
    })
    .collect()
}

fn windows_paths(family: AmiFamily, kubernetes: &str) -> Vec<AliasPath> {
    let year = family.as_str().trim_start_matches("Windows");
    let image = format!("Windows_Server-{year}-English-Core-EKS_Optimized-{kubernetes}");
    vec![AliasPath {
        path: format!("/aws/service/ami-windows-latest/{image}/image_id"),
        variants: Vec::new(),
    }]
}

/// An image as EC2 describes it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct FoundImage {
    /// `ami-...`.
    pub id: String,
    /// Name.
    pub name: String,
    /// Creation date as text; ISO 8601 orders by text.
    pub created: String,
    /// Whether the deprecation time has passed.
    pub deprecated: bool,
    /// `x86_64` or `arm64`.
    pub architecture: String,
}

/// The images of a class: one per set of requirements, newest first. `variants` tells what is known of
/// an image from its alias (an image may serve several).
#[must_use]
pub fn select(
    found: &[FoundImage],
    family: AmiFamily,
    variants: impl Fn(&str) -> Vec<Variant>,
) -> Vec<Ami> {
    let mut candidates: Vec<(&FoundImage, Vec<NodeSelectorRequirement>)> = Vec::new();
    for image in found {
        let Some(arch) = kubernetes_arch(&image.architecture) else {
            continue;
        };
        let known = variants(&image.id);
        if known.is_empty() {
            candidates.push((image, requirements(arch, family, None)));
        }
        candidates.extend(
            known
                .into_iter()
                .map(|variant| (image, requirements(arch, family, Some(variant)))),
        );
    }
    let order = |image: &FoundImage| (!image.deprecated, image.created.clone(), image.name.clone());
    candidates.sort_by(|(a, _), (b, _)| order(b).cmp(&order(a)).then_with(|| a.id.cmp(&b.id)));
    let mut chosen: Vec<(&FoundImage, Vec<NodeSelectorRequirement>)> = Vec::new();
    for (image, requirements) in candidates {
        if !chosen.iter().any(|(_, known)| *known == requirements) {
            chosen.push((image, requirements));
        }
    }
    // Deprecation decides between equals only; the list itself is by age, because the first image
    // that can start a type is the one that new nodes of the type get.
    chosen.sort_by(|(a, _), (b, _)| b.created.cmp(&a.created).then_with(|| a.id.cmp(&b.id)));
    chosen
        .into_iter()
        .map(|(image, requirements)| Ami {
            id: image.id.clone(),
            deprecated: image.deprecated,
            name: image.name.clone(),
            requirements,
        })
        .collect()
}

fn kubernetes_arch(architecture: &str) -> Option<&'static str> {
    match architecture {
        "x86_64" => Some("amd64"),
        "arm64" => Some("arm64"),
        _ => None,
    }
}

fn requirements(
    arch: &str,
    family: AmiFamily,
    variant: Option<Variant>,
) -> Vec<NodeSelectorRequirement> {
    let one = |key: &str, operator: Operator, values: Vec<String>| NodeSelectorRequirement {
        key: key.to_owned(),
        operator: operator.as_str().to_owned(),
        values,
    };
    let mut list = vec![one(labels::ARCH, Operator::In, vec![arch.to_owned()])];
    for (key, operator) in variant.into_iter().flat_map(Variant::requirements) {
        list.push(one(key, operator, Vec::new()));
    }
    if let Some(build) = crate::family::windows_build(family) {
        list.push(one(labels::OS, Operator::In, vec!["windows".to_owned()]));
        list.push(one(
            labels::WINDOWS_BUILD,
            Operator::In,
            vec![build.to_owned()],
        ));
    }
    // The order that the class's status has: shorter keys first.
    list.sort_by(|a, b| (a.key.len(), &a.key).cmp(&(b.key.len(), &b.key)));
    list
}

/// The first image, in order of the status, that can start a type.
#[must_use]
pub fn image_for<'a>(images: &'a [Ami], instance_type: &InstanceType) -> Option<&'a Ami> {
    images.iter().find(|ami| {
        let wanted: Requirements = ami
            .requirements
            .iter()
            .filter_map(|r| {
                let values = r.values.iter().map(|v| Name::from(v.as_str()));
                Some(Requirement::new(
                    &r.key.as_str().into(),
                    Operator::parse(&r.operator)?,
                    values,
                ))
            })
            .collect();
        instance_type.requirements.intersects(&wanted).is_ok()
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn aliases_name_the_documented_parameters() {
        let paths = |family, version: &str| -> Vec<String> {
            alias_paths(family, version, "1.32")
                .unwrap()
                .into_iter()
                .map(|p| p.path)
                .collect()
        };
        assert_eq!(
            paths(AmiFamily::AL2023, "latest")[0],
            "/aws/service/eks/optimized-ami/1.32/amazon-linux-2023/x86_64/standard/recommended/image_id"
        );
        assert_eq!(
            paths(AmiFamily::AL2023, "v20240807")[4],
            "/aws/service/eks/optimized-ami/1.32/amazon-linux-2023/arm64/nvidia/amazon-eks-node-al2023-arm64-nvidia-1.32-v20240807/image_id"
        );
        assert_eq!(
            paths(AmiFamily::AL2, "v20240807")[1],
            "/aws/service/eks/optimized-ami/1.32/amazon-linux-2-arm64/amazon-eks-arm64-node-1.32-v20240807/image_id"
        );
        assert_eq!(
            paths(AmiFamily::Bottlerocket, "v1.20.4")[2],
            "/aws/service/bottlerocket/aws-k8s-1.32-nvidia/x86_64/1.20.4/image_id"
        );
        assert!(alias_paths(AmiFamily::AL2, "latest", "1.33").is_err());
        assert!(alias_paths(AmiFamily::Windows2025, "latest", "1.34").is_err());
    }

    #[test]
    fn the_newest_image_that_is_not_deprecated_wins_for_each_set_of_requirements() {
        let image = |id: &str, created: &str, deprecated, architecture: &str| FoundImage {
            id: id.into(),
            name: id.into(),
            created: created.into(),
            deprecated,
            architecture: architecture.into(),
        };
        let found = [
            image("old", "2024-01", false, "x86_64"),
            image("new", "2024-06", false, "x86_64"),
            image("newest-but-deprecated", "2025-01", true, "x86_64"),
            image("arm", "2023-01", false, "arm64"),
            image("mac", "2025-01", false, "x86_64_mac"),
        ];
        let chosen = select(&found, AmiFamily::Custom, |_| Vec::new());
        let ids: Vec<&str> = chosen.iter().map(|ami| ami.id.as_str()).collect();
        assert_eq!(ids, ["new", "arm"]);
    }

    fn image(id: &str, created: &str, architecture: &str) -> FoundImage {
        FoundImage {
            id: id.into(),
            name: id.into(),
            created: created.into(),
            deprecated: false,
            architecture: architecture.into(),
        }
    }

    #[test]
    fn an_image_may_serve_several_variants_and_its_requirements_are_in_the_order_of_the_status() {
        let found = [
            image("gpu", "2024-02", "x86_64"),
            image("plain", "2024-01", "x86_64"),
        ];
        let chosen = select(&found, AmiFamily::AL2, |id| match id {
            "gpu" => vec![Variant::Neuron, Variant::Nvidia],
            _ => vec![Variant::Standard],
        });
        let ids: Vec<&str> = chosen.iter().map(|ami| ami.id.as_str()).collect();
        assert_eq!(ids, ["gpu", "gpu", "plain"]);
        let keys: Vec<&str> = chosen[2]
            .requirements
            .iter()
            .map(|r| r.key.as_str())
            .collect();
        assert_eq!(keys, [labels::ARCH, GPU, ACCELERATOR]);
    }

    #[test]
    fn each_type_gets_the_newest_image_made_for_it() {
        let found = [
            image("old", "2023-01", "x86_64"),
            image("nvidia", "2024-02", "x86_64"),
            image("plain", "2024-01", "x86_64"),
            image("arm", "2024-03", "arm64"),
        ];
        let chosen = select(&found, AmiFamily::AL2023, |id| match id {
            "nvidia" => vec![Variant::Nvidia],
            _ => vec![Variant::Standard],
        });
        let term = millwright_api::ec2_node_class::AmiSelectorTerm {
            alias: "al2023@latest".to_owned(),
            ..Default::default()
        };
        let spec = millwright_api::Ec2NodeClassSpec {
            ami_selector_terms: vec![term],
            ..Default::default()
        };
        let types =
            crate::embedded_instance_types(&millwright_api::Ec2NodeClass::new("default", spec));
        for (name, expected) in [
            ("m5.large", Some("plain")),
            ("g5.xlarge", Some("nvidia")),
            ("m7g.large", Some("arm")),
            ("inf2.xlarge", None),
        ] {
            let instance_type = types
                .iter()
                .find(|t| &*t.name == name)
                .expect("a known type");
            let ami = image_for(&chosen, instance_type).map(|ami| ami.id.as_str());
            assert_eq!(ami, expected, "{name}");
        }
    }

    #[test]
    fn windows_images_need_windows_types() {
        let chosen = select(&[image("w", "1", "x86_64")], AmiFamily::Windows2022, |_| {
            Vec::new()
        });
        let keys: Vec<&str> = chosen[0]
            .requirements
            .iter()
            .map(|r| r.key.as_str())
            .collect();
        assert_eq!(keys, [labels::OS, labels::ARCH, labels::WINDOWS_BUILD]);
    }
}
