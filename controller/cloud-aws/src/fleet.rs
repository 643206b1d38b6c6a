//! Launches: one CreateFleet for a group of equal NodeClaims.
//!
//! Source: AWS specification 20; decision D-005 for tokens and adoption.

use std::{
    collections::{BTreeMap, HashMap},
    time::Duration,
};

use aws_sdk_ec2::{
    operation::create_fleet::{CreateFleetOutput, builders::CreateFleetFluentBuilder},
    types::{
        DefaultTargetCapacityType, Filter, FleetLaunchTemplateConfigRequest,
        FleetLaunchTemplateOverridesRequest, FleetLaunchTemplateSpecificationRequest,
        FleetOnDemandAllocationStrategy, FleetType, InstanceLifecycle, OnDemandOptionsRequest,
        ResourceType, SpotAllocationStrategy, SpotOptionsRequest, TagSpecification,
        TargetCapacitySpecificationRequest,
    },
};
use millwright_api::{labels::INSTANCE_TENANCY, tags::RESOURCE_NITRO_SANDBOX};
use millwright_cloud::shape::name_of;
use millwright_cloud::{
    CloudError, CloudErrorKind, Instance, InstanceState, LaunchGroup, ec2_errors,
    launch::{self, Selection, select},
    tags,
    user_data::{UserDataError, UserDataInput, is_settable, user_data},
};
use millwright_model::{
    CapacityType, Effect, Name, ProviderId, Requirement, Taint, instance_type::InstanceTypes,
    labels,
};
use sha2::{Digest, Sha256};

use crate::{
    AwsProvider, class,
    errors::{cloud, code},
    instances,
    launch_templates::{Parameters, sdk_tags},
    now,
};

/// Attempts of one launch; all carry the same token, so a lost answer launches nothing twice.
const ATTEMPTS: u32 = 6;
/// First pause between attempts; doubles.
const PAUSE: Duration = Duration::from_millis(200);

/// Tokens that one launch may use: the first, and another when the first was spent.
const GENERATIONS: u32 = 2;
/// Looks for instances of a spent token; with pauses of 0.2 s that double, about six seconds.
const LOOKS: u32 = 5;

/// What a launch came to.
enum Created {
    /// Instances, and the error of those that are missing.
    Fleet(Vec<Instance>, Option<CloudError>),
    /// The token was used before with other parameters.
    TokenSpent(CloudError),
}

/// A failed request, and what to do about it.
enum Refused {
    /// Templates were deleted behind our back: make them again.
    NoTemplate,
    /// The token was used before with other parameters (prices or marks have changed since): what
    /// that call launched has to be found by its tag.
    TokenSpent(CloudError),
    /// Slow down, or the answer was lost: the same again.
    Repeat(CloudError),
    /// Final.
    Final(CloudError),
}

impl AwsProvider {
    pub(crate) async fn launch_group(
        &self,
        group: &LaunchGroup,
    ) -> Vec<Result<Instance, CloudError>> {
        let wanted = group.members.len();
        let mut launched = Vec::new();
        if !self.has_looked_for(&group.id) {
            match self.adopt(group, &[]).await {
                Ok(adopted) => launched = adopted,
                Err(error) => return vec![Err(error); wanted],
            }
            self.looked_for(&group.id);
        }
        launched.truncate(wanted);
        let mut shortfall = None;
        for generation in 0..GENERATIONS {
            let missing = wanted - launched.len();
            if missing == 0 {
                break;
            }
            match self.create(group, missing, generation).await {
                Ok(Created::Fleet(instances, error)) => {
                    launched.extend(instances);
                    shortfall = error;
                    break;
                }
                Ok(Created::TokenSpent(error)) => {
                    match self.find_launched_earlier(group, &launched).await {
                        Ok(found) => launched.extend(found),
                        Err(error) => return vec![Err(error); wanted],
                    }
                    launched.truncate(wanted);
                    shortfall = Some(error);
                }
                Err(error) => {
                    shortfall = Some(error);
                    break;
                }
            }
        }
        let error = shortfall.unwrap_or_else(|| {
            CloudError::new(
                CloudErrorKind::Transient,
                "LaunchFailed",
                "too few instances returned",
            )
        });
        let mut answers: Vec<Result<Instance, CloudError>> =
            launched.into_iter().take(wanted).map(Ok).collect();
        answers.resize_with(wanted, || Err(error.clone()));
        answers
    }

    /// Looks for what an earlier call with the group's token launched. Reads may lag behind the
    /// launch, so it looks several times before it believes that there is nothing.
    async fn find_launched_earlier(
        &self,
        group: &LaunchGroup,
        known: &[Instance],
    ) -> Result<Vec<Instance>, CloudError> {
        let mut pause = PAUSE;
        for _ in 0..LOOKS {
            let found = self.adopt(group, known).await?;
            if !found.is_empty() {
                return Ok(found);
            }
            tokio::time::sleep(pause).await;
            pause *= 2;
        }
        Ok(Vec::new())
    }

    /// Instances that were launched for this group and that nobody has written down; `known` are
    /// those that this launch already has.
    async fn adopt(
        &self,
        group: &LaunchGroup,
        known: &[Instance],
    ) -> Result<Vec<Instance>, CloudError> {
        let tag = Filter::builder()
            .name(format!("tag:{}", tags::LAUNCH_GROUP))
            .values(&*group.id)
            .build();
        let found = instances::sorted(self.describe(vec![tag]).await?)?;
        let types = self.types_of(&group.node_class)?;
        let mut adopted: Vec<Instance> = found
            .iter()
            .filter_map(instances::convert)
            .filter(|instance| instance.state != InstanceState::ShuttingDown)
            .filter(|instance| !group.claimed.contains(&instance.provider_id))
            .filter(|instance| !known.iter().any(|k| k.provider_id == instance.provider_id))
            .collect();
        for instance in &mut adopted {
            complete(instance, &types, group);
        }
        if !adopted.is_empty() {
            tracing::info!(
                group = &*group.id,
                instances = adopted.len(),
                "adopting instances of an earlier launch"
            );
        }
        Ok(adopted)
    }

    /// Launches; answers the instances and the error of those that are missing.
    async fn create(
        &self,
        group: &LaunchGroup,
        count: usize,
        generation: u32,
    ) -> Result<Created, CloudError> {
        class::ready(&group.node_class)?;
        if let Some(key) = tags::restricted(&group.node_class) {
            let message = format!("tag \"{key}\" is reserved");
            return Err(CloudError::new(
                CloudErrorKind::NodeClassNotReady,
                "TagValidationFailed",
                message,
            ));
        }
        let types = self.types_of(&group.node_class)?;
        let Some(first) = group.members.first() else {
            return Ok(Created::Fleet(Vec::new(), None));
        };
        let selection = select(&types, &first.requirements, &first.requests).ok_or_else(|| {
            let message = "all requested instance types were unavailable during launch";
            CloudError::new(
                CloudErrorKind::InsufficientCapacity,
                "InsufficientCapacity",
                message,
            )
        })?;
        let mut pause = PAUSE;
        let mut last = None;
        for _ in 0..ATTEMPTS {
            self.pace().await;
            match self.request(group, &selection, count, generation).await {
                Ok(output) => {
                    let (instances, error) = self.settle(group, &types, &selection, &output, count);
                    return Ok(Created::Fleet(instances, error));
                }
                Err(Refused::TokenSpent(error)) => return Ok(Created::TokenSpent(error)),
                Err(Refused::Final(error)) => return Err(error),
                Err(Refused::NoTemplate) => {
                    // Deleted behind our back, or made so lately that the fleet does not see it yet.
                    self.forget_templates();
                    tokio::time::sleep(pause).await;
                    pause *= 2;
                }
                Err(Refused::Repeat(error)) => {
                    if error.kind == CloudErrorKind::Throttled {
                        self.was_throttled();
                    }
                    last = Some(error);
                    tokio::time::sleep(pause).await;
                    pause *= 2;
                }
            }
        }
        Err(last.unwrap_or_else(|| {
            CloudError::new(
                CloudErrorKind::Transient,
                "LaunchFailed",
                "launch templates keep disappearing",
            )
        }))
    }

    async fn request(
        &self,
        group: &LaunchGroup,
        selection: &Selection,
        count: usize,
        generation: u32,
    ) -> Result<CreateFleetOutput, Refused> {
        let final_or_repeat = |error: CloudError| match error.kind {
            CloudErrorKind::Throttled | CloudErrorKind::Transient => Refused::Repeat(error),
            _ => Refused::Final(error),
        };
        let class_name = name_of(&group.node_class);
        let pool = group
            .members
            .first()
            .and_then(|member| member.node_pool.as_ref())
            .map(|pool| pool.as_str().to_owned());
        let launch_tags = tags::of_launch(
            &group.node_class,
            class_name,
            &self.settings().cluster_name,
            pool.as_deref(),
        );
        let configs = self
            .configs(group, selection, &launch_tags)
            .await
            .map_err(final_or_repeat)?;
        if configs.is_empty() {
            let message = "no capacity offerings are currently available given the constraints";
            return Err(Refused::Final(CloudError::new(
                CloudErrorKind::InsufficientCapacity,
                "InsufficientCapacity",
                message,
            )));
        }
        let spot = selection.capacity_type == CapacityType::Spot;
        let call = self
            .clients()
            .ec2_once
            .create_fleet()
            .client_token(token(group, count, generation))
            .set_context(group.node_class.spec.context.clone())
            .set_launch_template_configs(Some(configs))
            .target_capacity_specification(target(count, spot))
            .set_tag_specifications(Some(tag_specifications(&launch_tags, &group.id)));
        let call = with_strategy(call, spot);
        match call.send().await {
            Ok(output) => Ok(output),
            Err(error) if code(&error).contains("InvalidLaunchTemplate") => {
                Err(Refused::NoTemplate)
            }
            Err(error) if code(&error) == ec2_errors::TOKEN_MISMATCH => {
                Err(Refused::TokenSpent(cloud("create fleet", error)))
            }
            Err(error) => Err(final_or_repeat(cloud("create fleet", error))),
        }
    }

    /// One config per launch template, which exists afterwards.
    async fn configs(
        &self,
        group: &LaunchGroup,
        selection: &Selection,
        launch_tags: &BTreeMap<String, String>,
    ) -> Result<Vec<FleetLaunchTemplateConfigRequest>, CloudError> {
        let status = group.node_class.status.clone().unwrap_or_default();
        let subnets = self.subnet_by_zone(&status.subnets);
        let Some(first) = group.members.first() else {
            return Ok(Vec::new());
        };
        let requests = &first.requests;
        let tenancy = |name: &str| first.requirements.allows(INSTANCE_TENANCY, name);
        let dedicated = !tenancy("default") && tenancy("dedicated");
        let mut configs = Vec::new();
        for planned in launch::overrides(selection, &status.amis, &subnets, requests) {
            let lines = planned.overrides.iter().map(|line| {
                FleetLaunchTemplateOverridesRequest::builder()
                    .instance_type(line.instance_type.as_ref().into())
                    .subnet_id(&line.subnet_id)
                    .image_id(&planned.image_id)
                    .availability_zone(&*line.zone)
                    .priority(line.price.as_dollars())
                    .build()
            });
            let data = self
                .user_data(group, selection.capacity_type, planned.pods)
                .await?;
            let class_name = name_of(&group.node_class);
            let parameters = Parameters {
                class: &group.node_class,
                class_name,
                image_id: &planned.image_id,
                user_data: &data,
                capacity_type: selection.capacity_type,
                tags: launch_tags,
                efa: planned.efa,
                dedicated,
                enclave: requests.get(&RESOURCE_NITRO_SANDBOX.into()) > 0,
                ipv6: self
                    .settings()
                    .cluster_dns
                    .as_deref()
                    .is_some_and(|dns| dns.contains(':')),
            };
            let name = self.ensure_launch_template(&parameters).await?;
            let template = FleetLaunchTemplateSpecificationRequest::builder()
                .launch_template_name(name)
                .version("$Latest")
                .build();
            configs.push(
                FleetLaunchTemplateConfigRequest::builder()
                    .launch_template_specification(template)
                    .set_overrides(Some(lines.collect()))
                    .build(),
            );
        }
        Ok(configs)
    }

    async fn user_data(
        &self,
        group: &LaunchGroup,
        capacity_type: CapacityType,
        pods: i64,
    ) -> Result<String, CloudError> {
        let cluster = self.cluster().await?;
        let spec = &group.node_class.spec;
        let shape = millwright_cloud::shape::ClassShape::from(&*group.node_class);
        let Some(member) = group.members.first() else {
            return Ok(String::new());
        };
        let mut node_labels: BTreeMap<String, String> = member
            .labels
            .iter()
            .filter(|(key, _)| is_settable(key))
            .map(|(key, value)| (key.to_string(), value.to_string()))
            .collect();
        node_labels.insert(
            labels::CAPACITY_TYPE.to_owned(),
            capacity_type.as_str().to_owned(),
        );
        node_labels.insert(
            "karpenter.sh/do-not-sync-taints".to_owned(),
            "true".to_owned(),
        );
        let mut taints: Vec<Taint> = member
            .taints
            .iter()
            .chain(&member.startup_taints)
            .cloned()
            .collect();
        let unregistered = Taint::new("karpenter.sh/unregistered", "", Effect::NoExecute);
        if !taints.iter().any(|taint| taint.matches(&unregistered)) {
            taints.push(unregistered);
        }
        let input = UserDataInput {
            family: spec.resolved_ami_family(),
            cluster_name: &self.settings().cluster_name,
            endpoint: &cluster.endpoint,
            ca_bundle: &cluster.ca_bundle,
            service_cidr: cluster.service_cidr.as_deref(),
            cluster_dns: self.settings().cluster_dns.as_deref(),
            kubelet: &shape.kubelet,
            max_pods: u32::try_from(pods).unwrap_or(110),
            labels: &node_labels,
            taints: &taints,
            custom: spec.user_data.as_deref(),
            raid0: shape.raid0,
        };
        user_data(&input).map_err(|error| {
            let kind = match error {
                UserDataError::NoCidr => CloudErrorKind::NodeClassNotReady,
                UserDataError::Custom(_) => CloudErrorKind::Create,
            };
            CloudError::new(kind, "UserDataFailed", error.to_string())
        })
    }

    /// Instances of the answer, marks for what was refused, and the error of what is missing.
    fn settle(
        &self,
        group: &LaunchGroup,
        types: &InstanceTypes,
        selection: &Selection,
        output: &CreateFleetOutput,
        count: usize,
    ) -> (Vec<Instance>, Option<CloudError>) {
        let errors = self.note_errors(selection.capacity_type, output);
        let mut launched: Vec<Instance> = output
            .instances()
            .iter()
            .flat_map(|set| set.instance_ids().iter().map(move |id| (set, id)))
            .filter_map(|(set, id)| {
                let overrides = set
                    .launch_template_and_overrides()
                    .and_then(|l| l.overrides());
                let zone: Name = overrides.and_then(|o| o.availability_zone())?.into();
                let spot = set.lifecycle() == Some(&InstanceLifecycle::Spot);
                Some(Instance {
                    provider_id: ProviderId::from(format!("aws:///{zone}/{id}")),
                    state: InstanceState::Pending,
                    instance_type: set.instance_type().map_or("", |kind| kind.as_str()).into(),
                    zone,
                    capacity_type: if spot {
                        CapacityType::Spot
                    } else {
                        CapacityType::OnDemand
                    },
                    image_id: overrides
                        .and_then(|o| o.image_id())
                        .unwrap_or_default()
                        .into(),
                    launched_at: now(),
                    labels: BTreeMap::new(),
                    capacity: millwright_model::Resources::new(),
                    allocatable: millwright_model::Resources::new(),
                    node_claim: None,
                    launch_group: Some(group.id.clone()),
                    node_pool: None,
                })
            })
            .collect();
        launched.sort_by(|a, b| {
            instances::instance_id(&a.provider_id).cmp(instances::instance_id(&b.provider_id))
        });
        for instance in &mut launched {
            complete(instance, types, group);
        }
        let shortfall = (launched.len() < count).then(|| shortfall(&errors));
        (launched, shortfall)
    }

    /// Marks the offerings that were refused; answers distinct `code: message` pairs with their codes.
    fn note_errors(
        &self,
        capacity_type: CapacityType,
        output: &CreateFleetOutput,
    ) -> BTreeMap<String, String> {
        let mut distinct = BTreeMap::new();
        for error in output.errors() {
            let code = error.error_code().unwrap_or_default();
            let overrides = error
                .launch_template_and_overrides()
                .and_then(|l| l.overrides());
            let kind = overrides
                .and_then(|o| o.instance_type())
                .map(|kind| kind.as_str().to_owned());
            let zone = overrides
                .and_then(|o| o.availability_zone())
                .map(str::to_owned);
            let mut unavailable = self.unavailable();
            if code == ec2_errors::SUBNET_EXHAUSTED
                && let Some(subnet) = overrides.and_then(|o| o.subnet_id())
            {
                unavailable.mark_subnet(subnet, now());
            }
            if code == ec2_errors::SPOT_ROLE_MISSING {
                unavailable.mark_capacity_type(CapacityType::Spot, now());
            } else if ec2_errors::is_unfulfillable(code)
                && let (Some(kind), Some(zone)) = (kind, zone)
            {
                unavailable.mark(&kind, &zone, capacity_type, now());
            }
            drop(unavailable);
            distinct.insert(
                format!("{code}: {}", error.error_message().unwrap_or_default()),
                code.to_owned(),
            );
        }
        if !distinct.is_empty() {
            self.bump_epoch();
        }
        distinct
    }
}

/// Tags of what the fleet creates. Only instances carry the group, by which the next leader finds
/// them.
fn tag_specifications(
    launch_tags: &BTreeMap<String, String>,
    group: &Name,
) -> Vec<TagSpecification> {
    let tagged = |kind: ResourceType, tags: &BTreeMap<String, String>| {
        TagSpecification::builder()
            .resource_type(kind)
            .set_tags(Some(sdk_tags(tags)))
            .build()
    };
    let mut instance_tags = launch_tags.clone();
    instance_tags.insert(tags::LAUNCH_GROUP.to_owned(), group.to_string());
    vec![
        tagged(ResourceType::Instance, &instance_tags),
        tagged(ResourceType::Volume, launch_tags),
        tagged(ResourceType::Fleet, launch_tags),
    ]
}

fn target(count: usize, spot: bool) -> TargetCapacitySpecificationRequest {
    TargetCapacitySpecificationRequest::builder()
        .set_total_target_capacity(i32::try_from(count).ok())
        .default_target_capacity_type(if spot {
            DefaultTargetCapacityType::Spot
        } else {
            DefaultTargetCapacityType::OnDemand
        })
        .build()
}

/// An instant fleet that takes the cheapest, and of Spot the cheapest that is likely to last.
fn with_strategy(call: CreateFleetFluentBuilder, spot: bool) -> CreateFleetFluentBuilder {
    let call = call.r#type(FleetType::Instant);
    if spot {
        let strategy = SpotAllocationStrategy::PriceCapacityOptimized;
        call.spot_options(
            SpotOptionsRequest::builder()
                .allocation_strategy(strategy)
                .build(),
        )
    } else {
        let strategy = FleetOnDemandAllocationStrategy::LowestPrice;
        call.on_demand_options(
            OnDemandOptionsRequest::builder()
                .allocation_strategy(strategy)
                .build(),
        )
    }
}

/// The error of members without an instance.
fn shortfall(errors: &BTreeMap<String, String>) -> CloudError {
    let text = errors.keys().cloned().collect::<Vec<_>>().join("; ");
    let all_capacity = !errors.is_empty()
        && errors.values().all(|code| {
            ec2_errors::is_unfulfillable(code) || code == ec2_errors::SPOT_ROLE_MISSING
        });
    if all_capacity {
        let message = format!("with fleet error(s), {text}");
        return CloudError::new(
            CloudErrorKind::InsufficientCapacity,
            "InsufficientCapacity",
            message,
        );
    }
    let (reason, message) = ec2_errors::explain(&text);
    CloudError::new(CloudErrorKind::Create, reason, format!("{message}: {text}"))
}

/// Labels, capacity and allocatable of an instance, from its type and offering.
fn complete(instance: &mut Instance, types: &InstanceTypes, group: &LaunchGroup) {
    let Some(kind) = types
        .iter()
        .find(|kind| kind.name == instance.instance_type)
    else {
        return;
    };
    instance.capacity = kind.capacity.clone();
    instance.allocatable = kind.allocatable();
    let mut own: BTreeMap<Name, Name> = kind
        .requirements
        .iter()
        .filter(|r| {
            !r.key()
                .starts_with("karpenter.k8s.aws/capacity-reservation")
        })
        .filter_map(|r| Some((r.key().clone(), r.single()?.clone())))
        .collect();
    let offering = kind
        .offerings
        .iter()
        .find(|o| o.zone == instance.zone && o.capacity_type == instance.capacity_type);
    let fixed = offering.into_iter().flat_map(|o| o.requirements.iter());
    own.extend(fixed.filter_map(|r: &Requirement| Some((r.key().clone(), r.single()?.clone()))));
    own.insert(labels::ZONE.into(), instance.zone.clone());
    own.insert(
        labels::CAPACITY_TYPE.into(),
        instance.capacity_type.as_str().into(),
    );
    instance.labels = own;
    instance.node_pool = group
        .members
        .first()
        .and_then(|member| member.node_pool.clone());
}

/// The token of a group: equal for equal members, whoever asks.
/// `generation` counts tokens that turned out to be spent.
fn token(group: &LaunchGroup, count: usize, generation: u32) -> String {
    let mut uids: Vec<&str> = group.members.iter().map(|member| &*member.uid).collect();
    uids.sort_unstable();
    let mut hash = Sha256::new();
    hash.update(group.id.as_bytes());
    for uid in uids {
        hash.update([0]);
        hash.update(uid.as_bytes());
    }
    hash.update(count.to_le_bytes());
    hash.update(generation.to_le_bytes());
    hash.finalize()
        .iter()
        .map(|byte| format!("{byte:02x}"))
        .collect()
}

impl AwsProvider {
    /// The subnet of each zone with the most free addresses.
    fn subnet_by_zone(
        &self,
        subnets: &[millwright_api::ec2_node_class::Subnet],
    ) -> HashMap<String, String> {
        let mut chosen: HashMap<String, (i64, String)> = HashMap::new();
        for subnet in subnets {
            if self.unavailable().is_subnet_exhausted(&subnet.id, now()) {
                continue;
            }
            let free = self.free_addresses(&subnet.id);
            let slot = chosen
                .entry(subnet.zone.clone())
                .or_insert_with(|| (free, subnet.id.clone()));
            if free > slot.0 {
                *slot = (free, subnet.id.clone());
            }
        }
        chosen
            .into_iter()
            .map(|(zone, (_, id))| (zone, id))
            .collect()
    }
}
