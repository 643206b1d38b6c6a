//! Instances that exist: described, tagged, ended; concurrent wishes in common calls.

use std::collections::{BTreeMap, BTreeSet, HashMap};

use aws_sdk_ec2::types::{Filter, Instance as Ec2Instance, InstanceStateName, Tag};
use millwright_api::tags as keys;
use millwright_cloud::{CloudError, CloudErrorKind, Instance, InstanceState, ec2_errors, tags};
use millwright_model::{CapacityType, Name, NodeClaimName, ProviderId, Resources, Timestamp};

use crate::{
    AwsProvider,
    errors::{cloud, incomplete},
};

/// Ids that one description filters by. EC2 takes 200 filter values in all; the cluster's own
/// filters have eight.
const FILTER_IDS: usize = 190;

/// The instance id in a provider id.
pub(crate) fn instance_id(provider_id: &str) -> &str {
    provider_id.rsplit('/').next().unwrap_or(provider_id)
}

fn tag<'a>(instance: &'a Ec2Instance, key: &str) -> Option<&'a str> {
    instance
        .tags()
        .iter()
        .find(|tag| tag.key() == Some(key))
        .and_then(Tag::value)
}

/// An instance as the port describes it. Labels, capacity and allocatable are filled by a launch only.
pub(crate) fn convert(instance: &Ec2Instance) -> Option<Instance> {
    let zone: Name = instance
        .placement()
        .and_then(|p| p.availability_zone())
        .unwrap_or_default()
        .into();
    let id = instance.instance_id()?;
    let state = match instance.state().and_then(|state| state.name()) {
        Some(InstanceStateName::Pending) => InstanceState::Pending,
        Some(InstanceStateName::ShuttingDown) => InstanceState::ShuttingDown,
        Some(InstanceStateName::Terminated) => InstanceState::Terminated,
        Some(InstanceStateName::Stopped | InstanceStateName::Stopping) => InstanceState::Stopped,
        _ => InstanceState::Running,
    };
    let launched = instance
        .launch_time()
        .and_then(|at| at.to_millis().ok())
        .unwrap_or(0);
    Some(Instance {
        provider_id: ProviderId::from(format!("aws:///{zone}/{id}")),
        state,
        instance_type: instance
            .instance_type()
            .map_or("", |kind| kind.as_str())
            .into(),
        zone,
        capacity_type: if instance.spot_instance_request_id().is_some() {
            CapacityType::Spot
        } else {
            CapacityType::OnDemand
        },
        image_id: instance.image_id().unwrap_or_default().into(),
        launched_at: Timestamp(launched),
        labels: BTreeMap::new(),
        capacity: Resources::new(),
        allocatable: Resources::new(),
        node_claim: tag(instance, keys::NODE_CLAIM).map(Into::into),
        launch_group: tag(instance, tags::LAUNCH_GROUP).map(Into::into),
        node_pool: tag(instance, keys::NODE_POOL).map(Into::into),
    })
}

fn filter(name: &str, values: &[&str]) -> Filter {
    Filter::builder()
        .name(name)
        .set_values(Some(values.iter().map(ToString::to_string).collect()))
        .build()
}

const ALIVE: [&str; 5] = ["pending", "running", "stopping", "stopped", "shutting-down"];

impl AwsProvider {
    /// All instances of the cluster that are not terminated; `more` narrows them.
    pub(crate) async fn describe(&self, more: Vec<Filter>) -> Result<Vec<Ec2Instance>, CloudError> {
        let reservations = self
            .clients()
            .ec2
            .describe_instances()
            .set_filters(Some(self.cluster_filters(more)))
            .into_paginator()
            .page_size(1000)
            .items()
            .send()
            .try_collect()
            .await
            .map_err(|e| cloud("describe instances", e))?;
        Ok(reservations
            .into_iter()
            .flat_map(|r| r.instances.unwrap_or_default())
            .collect())
    }

    fn cluster_filters(&self, more: Vec<Filter>) -> Vec<Filter> {
        let mut filters = vec![
            filter("tag-key", &[keys::NODE_POOL]),
            filter("tag-key", &[keys::EC2_NODE_CLASS]),
            filter(
                &format!("tag:{}", keys::EKS_CLUSTER_NAME),
                &[self.settings().cluster_name.as_str()],
            ),
            filter("instance-state-name", &ALIVE),
        ];
        filters.extend(more);
        filters
    }

    pub(crate) async fn get_instance(
        &self,
        provider_id: &ProviderId,
    ) -> Result<Instance, CloudError> {
        let id = instance_id(provider_id).to_owned();
        self.look_at(id).await.map(|(instance, _)| instance)
    }

    pub(crate) async fn tag_instance(
        &self,
        provider_id: &ProviderId,
        claim: &NodeClaimName,
    ) -> Result<(), CloudError> {
        let id = instance_id(provider_id);
        // What is there already stays: a name may be the user's own.
        let (_, present) = self.look_at(id.to_owned()).await?;
        let wanted = [
            (keys::NAME, claim.as_str()),
            (keys::NODE_CLAIM, claim.as_str()),
            (
                keys::EKS_CLUSTER_NAME,
                self.settings().cluster_name.as_str(),
            ),
        ];
        let missing: Vec<Tag> = wanted
            .into_iter()
            .filter(|(key, _)| !present.contains(*key))
            .map(|(key, value)| Tag::builder().key(key).value(value).build())
            .collect();
        if missing.is_empty() {
            return Ok(());
        }
        self.clients()
            .ec2
            .create_tags()
            .resources(id)
            .set_tags(Some(missing))
            .send()
            .await
            .map(drop)
            .map_err(|e| cloud(&format!("tag instance {id}"), e))
    }

    /// An instance and the keys of its tags; concurrent looks share calls.
    async fn look_at(&self, id: String) -> Result<Seen, CloudError> {
        let provider = self.clone();
        self.inner
            .looks
            .ask(id, move |ids| look(provider.clone(), ids))
            .await
    }

    /// Ends an instance; says `NodeClaimNotFound` once it is gone.
    pub(crate) async fn end_instance(&self, provider_id: &ProviderId) -> Result<(), CloudError> {
        let id = instance_id(provider_id).to_owned();
        let provider = self.clone();
        let asked = self
            .inner
            .ends
            .ask(id.clone(), move |ids| end(provider.clone(), ids));
        match asked.await? {
            Ended::Leaving => Ok(()),
            Ended::Gone => Err(gone(&id)),
        }
    }
}

fn gone(id: &str) -> CloudError {
    let message = format!("instance {id} does not exist");
    CloudError::new(
        CloudErrorKind::NodeClaimNotFound,
        "NodeClaimNotFound",
        message,
    )
}

/// What a termination came to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Ended {
    /// On its way out.
    Leaving,
    /// Terminated, or unknown to EC2.
    Gone,
}

/// An instance and the keys of its tags.
pub(crate) type Seen = (Instance, BTreeSet<String>);

type Answers<T> = HashMap<String, Result<T, CloudError>>;

/// Describes instances in as few calls as EC2 allows. An id that is missing from the answer is gone.
pub(crate) async fn look(provider: AwsProvider, ids: Vec<String>) -> Answers<Seen> {
    let mut answers: Answers<Seen> = HashMap::new();
    for some in ids.chunks(FILTER_IDS) {
        let wanted: Vec<&str> = some.iter().map(String::as_str).collect();
        match provider
            .describe(vec![filter("instance-id", &wanted)])
            .await
        {
            Err(error) => {
                answers.extend(some.iter().map(|id| (id.clone(), Err(error.clone()))));
            }
            Ok(found) => {
                answers.extend(some.iter().map(|id| (id.clone(), Err(gone(id)))));
                for described in &found {
                    let keys = described.tags().iter().filter_map(|tag| tag.key());
                    if let (Some(id), Some(instance)) =
                        (described.instance_id(), convert(described))
                    {
                        let seen = (instance, keys.map(str::to_owned).collect());
                        answers.insert(id.to_owned(), Ok(seen));
                    }
                }
            }
        }
    }
    answers
}

/// Ends instances in one call, as far as they are not on their way out already. What a description
/// does not show may be gone, or so young that reads do not see it yet; so it is ended as well,
/// and EC2's answer tells which it was.
pub(crate) async fn end(provider: AwsProvider, ids: Vec<String>) -> Answers<Ended> {
    let mut answers: Answers<Ended> = HashMap::new();
    let mut left = Vec::new();
    for (id, seen) in look(provider.clone(), ids).await {
        match seen {
            Ok((instance, _)) if instance.state == InstanceState::ShuttingDown => {
                answers.insert(id, Ok(Ended::Leaving));
            }
            Err(error) if error.kind != CloudErrorKind::NodeClaimNotFound => {
                answers.insert(id, Err(error));
            }
            Ok(_) | Err(_) => left.push(id),
        }
    }
    left.sort_unstable();
    // One unknown id fails the whole call. EC2 names the unknown ones, so the second call is
    // without them; a third round would mean that it does not.
    for _ in 0..2 {
        if left.is_empty() {
            return answers;
        }
        let called = provider
            .clients()
            .ec2
            .terminate_instances()
            .set_instance_ids(Some(left.clone()));
        let error = match called.send().await {
            Ok(output) => {
                for change in output.terminating_instances() {
                    let state = change.current_state().and_then(|state| state.name());
                    let ended = match state {
                        Some(InstanceStateName::Terminated) => Ended::Gone,
                        _ => Ended::Leaving,
                    };
                    answers.insert(
                        change.instance_id().unwrap_or_default().to_owned(),
                        Ok(ended),
                    );
                }
                left.retain(|id| !answers.contains_key(id));
                break;
            }
            Err(error) => error,
        };
        let unknown = ec2_errors::is_not_found(&crate::errors::code(&error));
        let error = cloud("terminate instances", error);
        let named: Vec<String> = left
            .iter()
            .filter(|id| error.message.contains(id.as_str()))
            .cloned()
            .collect();
        if !unknown || named.is_empty() {
            answers.extend(left.drain(..).map(|id| (id, Err(error.clone()))));
            break;
        }
        left.retain(|id| !named.contains(id));
        answers.extend(named.into_iter().map(|id| (id, Ok(Ended::Gone))));
    }
    let error = incomplete("terminate instances");
    answers.extend(left.into_iter().map(|id| (id, Err(error.clone()))));
    answers
}

/// The instances of an answer, in order of id.
pub(crate) fn sorted(mut instances: Vec<Ec2Instance>) -> Result<Vec<Ec2Instance>, CloudError> {
    if instances
        .iter()
        .any(|instance| instance.instance_id().is_none())
    {
        return Err(incomplete("instances"));
    }
    instances.sort_by(|a, b| a.instance_id().cmp(&b.instance_id()));
    Ok(instances)
}
