//! Instances that exist: described, tagged, ended; concurrent wishes in common calls.

use std::{
    collections::{BTreeMap, HashMap},
    sync::{Arc, Mutex, PoisonError},
    time::Duration,
};

use aws_sdk_ec2::types::{Filter, Instance as Ec2Instance, InstanceStateName, Tag};
use millwright_api::tags as keys;
use millwright_cloud::{CloudError, CloudErrorKind, Instance, InstanceState, ec2_errors, tags};
use millwright_model::{CapacityType, Name, NodeClaimName, ProviderId, Resources, Timestamp};
use tokio::sync::Notify;

use crate::{
    AwsProvider,
    errors::{cloud, incomplete},
};

/// Wishes are gathered this long before the call.
const WINDOW: Duration = Duration::from_millis(20);
/// Instances of one call.
const BATCH: usize = 500;

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
        let found = self
            .describe(vec![filter("instance-id", &[id.as_str()])])
            .await?;
        found.first().and_then(convert).ok_or_else(|| gone(&id))
    }

    pub(crate) async fn tag_instance(
        &self,
        provider_id: &ProviderId,
        claim: &NodeClaimName,
    ) -> Result<(), CloudError> {
        let id = instance_id(provider_id);
        let one = |key: &str, value: &str| Tag::builder().key(key).value(value).build();
        self.clients()
            .ec2
            .create_tags()
            .resources(id)
            .tags(one("Name", claim))
            .tags(one(keys::NODE_CLAIM, claim))
            .tags(one(keys::EKS_CLUSTER_NAME, &self.settings().cluster_name))
            .send()
            .await
            .map(drop)
            .map_err(|e| cloud(&format!("tag instance {id}"), e))
    }

    /// Ends an instance; says `NodeClaimNotFound` once it is gone.
    pub(crate) async fn end_instance(&self, provider_id: &ProviderId) -> Result<(), CloudError> {
        let id = instance_id(provider_id).to_owned();
        match self.inner.terminations.wait(self, id.clone()).await? {
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

type Answer = Result<Ended, CloudError>;

/// Gathers terminations: one call for many instances.
#[derive(Debug, Default)]
pub(crate) struct Terminations {
    waiting: Mutex<HashMap<String, Arc<Slot>>>,
}

#[derive(Debug, Default)]
struct Slot {
    answer: Mutex<Option<Answer>>,
    done: Notify,
}

impl Terminations {
    async fn wait(&self, provider: &AwsProvider, id: String) -> Answer {
        let (slot, first) = {
            let mut waiting = self.waiting.lock().unwrap_or_else(PoisonError::into_inner);
            let first = waiting.is_empty();
            (Arc::clone(waiting.entry(id).or_default()), first)
        };
        if first {
            let provider = provider.clone();
            tokio::spawn(async move {
                tokio::time::sleep(WINDOW).await;
                provider.inner.terminations.flush(&provider).await;
            });
        }
        loop {
            let notified = slot.done.notified();
            if let Some(answer) = slot
                .answer
                .lock()
                .unwrap_or_else(PoisonError::into_inner)
                .clone()
            {
                return answer;
            }
            notified.await;
        }
    }

    async fn flush(&self, provider: &AwsProvider) {
        let gathered =
            std::mem::take(&mut *self.waiting.lock().unwrap_or_else(PoisonError::into_inner));
        let all: Vec<(String, Arc<Slot>)> = gathered.into_iter().collect();
        for batch in all.chunks(BATCH) {
            let ids: Vec<String> = batch.iter().map(|(id, _)| id.clone()).collect();
            let answers = terminate(provider, &ids).await;
            for (id, slot) in batch {
                let answer = answers.get(id).cloned().unwrap_or(Ok(Ended::Leaving));
                *slot.answer.lock().unwrap_or_else(PoisonError::into_inner) = Some(answer);
                slot.done.notify_waiters();
                slot.done.notify_one();
            }
        }
    }
}

/// Ends instances in one call. One unknown id fails the whole call, so what exists is asked first.
async fn terminate(provider: &AwsProvider, ids: &[String]) -> HashMap<String, Answer> {
    let refused = |error: CloudError| {
        ids.iter()
            .map(|id| (id.clone(), Err(error.clone())))
            .collect()
    };
    let known: Vec<&str> = ids.iter().map(String::as_str).collect();
    let described = match provider.describe(vec![filter("instance-id", &known)]).await {
        Ok(described) => described,
        Err(error) => return refused(error),
    };
    let mut answers: HashMap<String, Answer> =
        ids.iter().map(|id| (id.clone(), Ok(Ended::Gone))).collect();
    let mut to_end = Vec::new();
    for instance in described.iter().filter_map(convert) {
        let id = instance_id(&instance.provider_id).to_owned();
        if instance.state == InstanceState::ShuttingDown {
            answers.insert(id, Ok(Ended::Leaving));
        } else {
            to_end.push(id);
        }
    }
    if to_end.is_empty() {
        return answers;
    }
    let called = provider
        .clients()
        .ec2
        .terminate_instances()
        .set_instance_ids(Some(to_end.clone()))
        .send()
        .await;
    let outcome = match called {
        Ok(_) => Ok(Ended::Leaving),
        Err(error) if ec2_errors::is_not_found(&crate::errors::code(&error)) => Ok(Ended::Leaving),
        Err(error) => Err(cloud("terminate instances", error)),
    };
    for id in to_end {
        answers.insert(id, outcome.clone());
    }
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
