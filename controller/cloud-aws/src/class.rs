//! Node classes: subnets, security groups, images, instance profile, permissions.
//!
//! Source: AWS specification 5, 16, 17, 28.

use std::collections::BTreeMap;

use aws_sdk_ec2::types::Filter;
use millwright_api::{
    Ec2NodeClass, Ec2NodeClassStatus,
    conditions::{self as c, Conditioned, reasons},
    ec2_node_class::{SecurityGroup, Subnet},
};
use millwright_cloud::shape::{name_of, uid_of};
use millwright_cloud::{
    CloudError, CloudErrorKind, NodeClassResolution, images, instance_profile, kubelet, selectors,
    tags,
};

use crate::{
    AwsProvider,
    errors::{cloud, code},
};

/// How soon a class is looked at again when something it names was not found.
const AGAIN_SOON_MS: u64 = 10_000;

/// A condition as it should be: type, and for "no" reason and message.
type Verdict = Result<(), (&'static str, String)>;

pub(crate) fn sdk_filters(filters: &[selectors::Filter]) -> Vec<Filter> {
    filters
        .iter()
        .map(|f| {
            Filter::builder()
                .name(&f.name)
                .set_values(Some(f.values.clone()))
                .build()
        })
        .collect()
}

impl AwsProvider {
    pub(crate) async fn resolve(
        &self,
        class: &Ec2NodeClass,
    ) -> Result<NodeClassResolution, CloudError> {
        let mut status = Ec2NodeClassStatus::default();
        let mut verdicts: Vec<(&'static str, Verdict)> = Vec::new();
        verdicts.push((
            c::AMIS_READY,
            self.resolve_images(class, &mut status).await?,
        ));
        verdicts.push((c::PLACEMENT_GROUP_READY, placement_group(class)));
        verdicts.push((
            c::SUBNETS_READY,
            self.resolve_subnets(class, &mut status).await?,
        ));
        verdicts.push((
            c::SECURITY_GROUPS_READY,
            self.resolve_security_groups(class, &mut status).await?,
        ));
        verdicts.push((
            c::INSTANCE_PROFILE_READY,
            self.resolve_instance_profile(class, &mut status).await?,
        ));
        let dependencies = verdicts.iter().all(|(_, verdict)| verdict.is_ok());
        let validation = self.validate(class, &status, dependencies).await?;
        verdicts.push((c::VALIDATION_SUCCEEDED, validation));
        let all = verdicts.iter().all(|(_, verdict)| verdict.is_ok());
        status.conditions = verdicts
            .into_iter()
            .map(|(kind, verdict)| condition(kind, verdict))
            .collect();
        let again = if all {
            self.settings().subnet_refresh_ms
        } else {
            AGAIN_SOON_MS
        };
        Ok(NodeClassResolution {
            status,
            again_after_ms: again,
        })
    }

    async fn resolve_subnets(
        &self,
        class: &Ec2NodeClass,
        status: &mut Ec2NodeClassStatus,
    ) -> Result<Verdict, CloudError> {
        let mut found: BTreeMap<String, (i32, Subnet)> = BTreeMap::new();
        for query in selectors::subnet_queries(&class.spec.subnet_selector_terms) {
            let subnets = self
                .clients()
                .ec2
                .describe_subnets()
                .set_filters(Some(sdk_filters(&query)))
                .into_paginator()
                .page_size(500)
                .items()
                .send()
                .try_collect()
                .await
                .map_err(|e| cloud("describe subnets", e))?;
            for subnet in subnets {
                let Some(id) = subnet.subnet_id() else {
                    continue;
                };
                let free = subnet.available_ip_address_count().unwrap_or(0);
                let zone = subnet.availability_zone().unwrap_or_default().to_owned();
                let zone_id = subnet.availability_zone_id().unwrap_or_default().to_owned();
                found.insert(
                    id.to_owned(),
                    (
                        free,
                        Subnet {
                            id: id.to_owned(),
                            zone,
                            zone_id,
                        },
                    ),
                );
            }
        }
        self.note_addresses(
            found
                .values()
                .map(|(free, subnet)| (subnet.id.clone(), i64::from(*free))),
        );
        let mut list: Vec<(i32, Subnet)> = found.into_values().collect();
        list.sort_by(|(a, x), (b, y)| b.cmp(a).then_with(|| x.id.cmp(&y.id)));
        status.subnets = list.into_iter().map(|(_, subnet)| subnet).collect();
        Ok(if status.subnets.is_empty() {
            Err((
                reasons::SUBNETS_NOT_FOUND,
                "SubnetSelector did not match any Subnets".to_owned(),
            ))
        } else {
            Ok(())
        })
    }

    async fn resolve_security_groups(
        &self,
        class: &Ec2NodeClass,
        status: &mut Ec2NodeClassStatus,
    ) -> Result<Verdict, CloudError> {
        let mut found: BTreeMap<String, SecurityGroup> = BTreeMap::new();
        for query in selectors::security_group_queries(&class.spec.security_group_selector_terms) {
            let groups = self
                .clients()
                .ec2
                .describe_security_groups()
                .set_filters(Some(sdk_filters(&query)))
                .into_paginator()
                .page_size(500)
                .items()
                .send()
                .try_collect()
                .await
                .map_err(|e| cloud("describe security groups", e))?;
            for group in groups {
                let Some(id) = group.group_id() else { continue };
                let name = group.group_name().unwrap_or_default().to_owned();
                found.insert(
                    id.to_owned(),
                    SecurityGroup {
                        id: id.to_owned(),
                        name,
                    },
                );
            }
        }
        status.security_groups = found.into_values().collect();
        Ok(if status.security_groups.is_empty() {
            let message = "SecurityGroupSelector did not match any SecurityGroups".to_owned();
            Err((reasons::SECURITY_GROUPS_NOT_FOUND, message))
        } else {
            Ok(())
        })
    }

    async fn resolve_images(
        &self,
        class: &Ec2NodeClass,
        status: &mut Ec2NodeClassStatus,
    ) -> Result<Verdict, CloudError> {
        let family = class.spec.resolved_ami_family();
        let mut ids: Vec<String> = Vec::new();
        let mut variants: BTreeMap<String, Vec<images::Variant>> = BTreeMap::new();
        for term in &class.spec.ami_selector_terms {
            if let Some(alias) = term.alias_family() {
                let version = term.alias_version().unwrap_or("latest");
                let kubernetes = self.kubernetes_version().await?;
                let paths = match images::alias_paths(alias, version, &kubernetes) {
                    Ok(paths) => paths,
                    Err(error) => return Ok(Err((reasons::UNSUPPORTED_ALIAS, error.to_string()))),
                };
                for path in paths {
                    if let Some(id) = self.parameter(&path.path).await? {
                        variants
                            .entry(id.clone())
                            .or_default()
                            .extend(path.variants);
                        ids.push(id);
                    }
                }
            } else if !term.ssm_parameter.is_empty()
                && let Some(id) = self.parameter(&term.ssm_parameter).await?
            {
                ids.push(id);
            }
        }
        let found = self
            .describe_images(&selectors::image_queries(
                &class.spec.ami_selector_terms,
                &ids,
            ))
            .await?;
        status.amis = images::select(&found, family, |id| {
            variants.get(id).cloned().unwrap_or_default()
        });
        Ok(if status.amis.is_empty() {
            Err((
                reasons::AMI_NOT_FOUND,
                "AMISelector did not match any AMIs".to_owned(),
            ))
        } else {
            Ok(())
        })
    }

    async fn describe_images(
        &self,
        queries: &[selectors::ImageQuery],
    ) -> Result<Vec<images::FoundImage>, CloudError> {
        let now = jiff::Timestamp::now().to_string();
        let mut found: BTreeMap<String, images::FoundImage> = BTreeMap::new();
        for query in queries {
            let described = self
                .clients()
                .ec2
                .describe_images()
                .set_owners((!query.owners.is_empty()).then(|| query.owners.clone()))
                .set_filters(Some(sdk_filters(&query.filters)))
                .include_deprecated(true)
                .into_paginator()
                .page_size(1000)
                .items()
                .send()
                .try_collect()
                .await
                .map_err(|e| cloud("describe images", e))?;
            for image in described {
                let Some(id) = image.image_id() else { continue };
                found.insert(
                    id.to_owned(),
                    images::FoundImage {
                        id: id.to_owned(),
                        name: image.name().unwrap_or_default().to_owned(),
                        created: image.creation_date().unwrap_or_default().to_owned(),
                        deprecated: image
                            .deprecation_time()
                            .is_some_and(|at| !at.is_empty() && at <= now.as_str()),
                        architecture: image.architecture().map_or("", |a| a.as_str()).to_owned(),
                    },
                );
            }
        }
        Ok(found.into_values().collect())
    }

    /// The image id in a parameter; `None` when the parameter does not exist or holds something else.
    async fn parameter(&self, path: &str) -> Result<Option<String>, CloudError> {
        if let Some(known) = self.known_parameter(path) {
            return Ok(known);
        }
        let value = match self.clients().ssm.get_parameter().name(path).send().await {
            Ok(answer) => answer
                .parameter()
                .and_then(|p| p.value())
                .map(str::to_owned),
            Err(error) if code(&error) == "ParameterNotFound" => None,
            Err(error) => return Err(cloud(&format!("get parameter {path}"), error)),
        };
        let id = value.filter(|value| value.starts_with("ami-"));
        self.remember_parameter(path, id.clone());
        Ok(id)
    }

    async fn resolve_instance_profile(
        &self,
        class: &Ec2NodeClass,
        status: &mut Ec2NodeClassStatus,
    ) -> Result<Verdict, CloudError> {
        if let Some(profile) = &class.spec.instance_profile {
            status.instance_profile.clone_from(profile);
            return Ok(Ok(()));
        }
        let role = class.spec.role.clone().unwrap_or_default();
        let uid = uid_of(class);
        let (cluster, region) = (&self.settings().cluster_name, &self.clients().region);
        let name = instance_profile::name(cluster, region, uid, &role);
        if !self.is_known_profile(&name) {
            let path = instance_profile::class_path(region, cluster, uid);
            if let Err(verdict) = self
                .ensure_profile(class, &name, &path, instance_profile::role_name(&role))
                .await?
            {
                return Ok(Err(verdict));
            }
            self.remember_profile(&name);
        }
        status.instance_profile = name;
        Ok(Ok(()))
    }

    async fn ensure_profile(
        &self,
        class: &Ec2NodeClass,
        name: &str,
        path: &str,
        role: &str,
    ) -> Result<Verdict, CloudError> {
        let iam = &self.clients().iam;
        let cluster = &self.settings().cluster_name;
        let tags =
            tags::of_instance_profile(class, name_of(class), cluster, &self.clients().region)
                .into_iter()
                .filter_map(|(key, value)| {
                    aws_sdk_iam::types::Tag::builder()
                        .key(key)
                        .value(value)
                        .build()
                        .ok()
                })
                .collect();
        let created = iam
            .create_instance_profile()
            .instance_profile_name(name)
            .path(path)
            .set_tags(Some(tags))
            .send()
            .await;
        if let Err(error) = created
            && code(&error) != "EntityAlreadyExists"
        {
            return Err(cloud(&format!("create instance profile {name}"), error));
        }
        match iam
            .add_role_to_instance_profile()
            .instance_profile_name(name)
            .role_name(role)
            .send()
            .await
        {
            Ok(_) => Ok(Ok(())),
            // A profile holds one role; the name depends on the role, so it is ours.
            Err(error) if code(&error) == "LimitExceeded" => Ok(Ok(())),
            Err(error) if code(&error) == "NoSuchEntity" => {
                Ok(Err(("RoleNotFound", format!("role \"{role}\" not found"))))
            }
            Err(error) => Err(cloud(
                &format!("add role to instance profile {name}"),
                error,
            )),
        }
    }

    async fn validate(
        &self,
        class: &Ec2NodeClass,
        status: &Ec2NodeClassStatus,
        dependencies: bool,
    ) -> Result<Verdict, CloudError> {
        let raw = class
            .spec
            .kubelet
            .as_ref()
            .map(|kubelet| kubelet.0.clone())
            .unwrap_or_default();
        if let Err(error) = kubelet::validate(&raw, class.spec.resolved_ami_family()) {
            return Ok(Err((error.reason(), error.to_string())));
        }
        if !dependencies {
            let message =
                "Awaiting AMI, Instance Profile, Security Group, and Subnet resolution".to_owned();
            return Ok(Err((reasons::DEPENDENCIES_NOT_READY, message)));
        }
        if let Some(key) = tags::restricted(class) {
            return Ok(Err((
                "TagValidationFailed",
                format!("tag \"{key}\" is reserved"),
            )));
        }
        if self.settings().disable_dry_run {
            return Ok(Ok(()));
        }
        self.check_permissions(class, status).await
    }

    pub(crate) async fn finalize(&self, class: &Ec2NodeClass) -> Result<(), CloudError> {
        self.delete_launch_templates(name_of(class)).await?;
        if self.settings().isolated_vpc || class.spec.role.is_none() {
            return Ok(());
        }
        let uid = uid_of(class);
        let path = instance_profile::class_path(
            &self.clients().region,
            &self.settings().cluster_name,
            uid,
        );
        let iam = &self.clients().iam;
        let profiles = iam
            .list_instance_profiles()
            .path_prefix(path)
            .into_paginator()
            .items()
            .send()
            .try_collect()
            .await
            .map_err(|e| cloud("list instance profiles", e))?;
        for profile in profiles {
            let name = profile.instance_profile_name();
            for role in profile.roles() {
                let removed = iam
                    .remove_role_from_instance_profile()
                    .instance_profile_name(name)
                    .role_name(role.role_name())
                    .send()
                    .await;
                if let Err(error) = removed
                    && code(&error) != "NoSuchEntity"
                {
                    return Err(cloud(
                        &format!("remove role from instance profile {name}"),
                        error,
                    ));
                }
            }
            if let Err(error) = iam
                .delete_instance_profile()
                .instance_profile_name(name)
                .send()
                .await
                && code(&error) != "NoSuchEntity"
            {
                return Err(cloud(&format!("delete instance profile {name}"), error));
            }
            self.forget_profile(name);
        }
        Ok(())
    }
}

/// Placement groups come with a later release; a class that names one is not usable before.
fn placement_group(class: &Ec2NodeClass) -> Verdict {
    match class.spec.placement_group_selector {
        None => Ok(()),
        Some(_) => Err((
            reasons::PLACEMENT_GROUP_RESOLUTION_FAILED,
            "placement groups are not supported yet".to_owned(),
        )),
    }
}

fn condition(kind: &str, verdict: Verdict) -> millwright_api::Condition {
    match verdict {
        Ok(()) => c::verdict(kind, c::TRUE, kind, ""),
        Err((reason, message)) => c::verdict(kind, c::FALSE, reason, &message),
    }
}

/// Whether a class can be launched with, as its status says.
pub(crate) fn ready(class: &Ec2NodeClass) -> Result<(), CloudError> {
    let not_ready = |message: String| {
        Err(CloudError::new(
            CloudErrorKind::NodeClassNotReady,
            "NodeClassNotReady",
            message,
        ))
    };
    let name = name_of(class);
    let Some(condition) = class.condition(c::READY) else {
        return not_ready(format!("nodeclass {name} has not been reconciled"));
    };
    match condition.status.as_str() {
        "True" if class.is_ready_now() => Ok(()),
        "True" => not_ready(format!(
            "nodeclass {name}: status has not been reconciled against the latest spec"
        )),
        _ => not_ready(format!(
            "nodeclass {name} is not ready: {}",
            condition.message
        )),
    }
}
