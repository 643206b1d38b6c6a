//! Plans carried out against an API server in memory that keeps NodeClaims and refuses on demand.

use std::{
    collections::{BTreeMap, BTreeSet},
    convert::Infallible,
    sync::{Arc, Mutex},
    time::Duration,
};

use http::{Method, Request, Response};
use http_body_util::BodyExt as _;
use kube::{Client, client::Body};
use millwright_api::{Ec2NodeClass, NodeClaim, NodePool};
use millwright_cloud::{catalogue::embedded_instance_types, memory::MemoryProvider};
use millwright_model::{ClusterSnapshot, Plan, Span, Timestamp, instance_type::InstanceTypes};
use millwright_scheduling::{SolveSettings, check, solve};
use serde_json::{Value, json};
use tokio::task::JoinSet;

use super::*;
use crate::{Context, Settings, batch::BatchSettings, events::Recorder, leader::Leadership};

#[derive(Default)]
struct Server {
    /// NodeClaims by name.
    claims: BTreeMap<String, Value>,
    /// Creations so far, refused ones too.
    creations: usize,
    /// Refuses every creation whose number divides by this.
    refuse_every: Option<usize>,
    /// Deletions: name and body.
    deletions: Vec<(String, Value)>,
}

type Shared = Arc<Mutex<Server>>;

fn answer(code: u16, body: &Value) -> Response<Body> {
    let body = Body::from(body.to_string().into_bytes());
    Response::builder().status(code).body(body).unwrap()
}

/// `None`: the request waits for ever, as a watch without news does.
fn serve(
    server: &mut Server,
    method: &Method,
    path: &str,
    watch: bool,
    body: &[u8],
) -> Option<Response<Body>> {
    let Some((_, name)) = path.split_once("/nodeclaims") else {
        return (*method == Method::POST).then(|| answer(201, &json!({})));
    };
    match *method {
        Method::GET if watch => None,
        Method::GET => {
            let items: Vec<&Value> = server.claims.values().collect();
            let list = json!({"apiVersion": "karpenter.sh/v1", "kind": "NodeClaimList",
                "metadata": {"resourceVersion": "1"}, "items": items});
            Some(answer(200, &list))
        }
        Method::POST => {
            server.creations += 1;
            if server
                .refuse_every
                .is_some_and(|n| server.creations.is_multiple_of(n))
            {
                let status = json!({"kind": "Status", "status": "Failure", "reason": "InternalError", "code": 500});
                return Some(answer(500, &status));
            }
            let mut claim: Value = serde_json::from_slice(body).unwrap();
            let name = format!(
                "{}{}",
                claim["metadata"]["generateName"]
                    .as_str()
                    .unwrap_or_default(),
                server.creations
            );
            claim["metadata"]["name"] = name.as_str().into();
            claim["metadata"]["uid"] = format!("uid-{name}").into();
            claim["metadata"]["resourceVersion"] = "1".into();
            claim["metadata"]["creationTimestamp"] = "2026-01-01T00:00:00Z".into();
            server.claims.insert(name, claim.clone());
            Some(answer(201, &claim))
        }
        Method::DELETE => {
            let name = name.trim_start_matches('/').to_owned();
            server
                .deletions
                .push((name.clone(), serde_json::from_slice(body).unwrap()));
            let claim = server.claims.remove(&name).unwrap_or_default();
            Some(answer(200, &claim))
        }
        _ => Some(answer(405, &json!({}))),
    }
}

fn client(server: &Shared) -> Client {
    let server = Arc::clone(server);
    let service = tower::service_fn(move |request: Request<Body>| {
        let server = Arc::clone(&server);
        async move {
            let (parts, body) = request.into_parts();
            let body = body.collect().await.unwrap().to_bytes();
            let watch = parts
                .uri
                .query()
                .is_some_and(|query| query.contains("watch=true"));
            let reply = serve(
                &mut server.lock().unwrap(),
                &parts.method,
                parts.uri.path(),
                watch,
                &body,
            );
            match reply {
                Some(reply) => Ok::<_, Infallible>(reply),
                None => std::future::pending().await,
            }
        }
    });
    Client::new(service, "default")
}

fn types() -> InstanceTypes {
    let class: Ec2NodeClass = serde_json::from_value(json!({
        "apiVersion": "karpenter.k8s.aws/v1", "kind": "EC2NodeClass", "metadata": {"name": "default"},
        "spec": {
            "amiFamily": "AL2023", "role": "r",
            "amiSelectorTerms": [{"alias": "al2023@latest"}],
            "subnetSelectorTerms": [{"id": "subnet-1"}],
            "securityGroupSelectorTerms": [{"id": "sg-1"}],
        },
    }))
    .unwrap();
    embedded_instance_types(&class)
}

struct World {
    context: Context,
    server: Shared,
    types: InstanceTypes,
    _tasks: JoinSet<()>,
}

impl World {
    fn new(leadership: Leadership) -> Self {
        Self::on(&Shared::default(), leadership)
    }

    fn on(server: &Shared, leadership: Leadership) -> Self {
        let types = types();
        let mut tasks = JoinSet::new();
        let settings = Settings {
            cluster_name: "test".to_owned(),
            batch: BatchSettings {
                idle: Span::from_secs(1),
                max: Span::from_secs(10),
            },
            anticipation: true,
            solve: SolveSettings::default(),
            cpu_requests_millis: 1000,
        };
        let provider = Arc::new(MemoryProvider::new(Arc::clone(&types)));
        let context = Context::start(
            client(server),
            provider,
            Recorder::new().0,
            leadership,
            settings,
            &mut tasks,
        );
        Self {
            context,
            server: Arc::clone(server),
            types,
            _tasks: tasks,
        }
    }

    fn pool(&self, limits: &Value) {
        let pool: NodePool = serde_json::from_value(json!({
            "apiVersion": "karpenter.sh/v1", "kind": "NodePool",
            "metadata": {"name": "batch", "uid": "pool-uid", "generation": 1},
            "spec": {"limits": limits, "template": {"spec": {
                "nodeClassRef": {"group": "karpenter.k8s.aws", "kind": "EC2NodeClass", "name": "default"},
                "requirements": [{"key": "node.kubernetes.io/instance-type", "operator": "In", "values": ["c6i.4xlarge"]}],
            }}},
            "status": {"conditions": [{"type": "Ready", "status": "True", "reason": "Ready", "message": "",
                "lastTransitionTime": "2026-01-01T00:00:00Z", "observedGeneration": 1}]},
        }))
        .unwrap();
        self.context.state().apply_pool(pool);
    }

    fn pods(&self, count: usize) {
        for n in 0..count {
            let pod = serde_json::from_value(json!({
                "metadata": {"name": format!("p{n}"), "namespace": "d", "uid": format!("u{n}")},
                "spec": {"containers": [{"name": "c", "resources": {"requests": {"cpu": "1", "memory": "1Gi"}}}]},
                "status": {"conditions": [{"type": "PodScheduled", "status": "False", "reason": "Unschedulable"}]},
            }))
            .unwrap();
            self.context.state().apply_pod(&pod);
        }
    }

    fn plan(&self) -> (Arc<ClusterSnapshot>, Plan) {
        let (snapshot, errors) = self
            .context
            .state()
            .snapshot(Timestamp(0), true, |_| Arc::clone(&self.types));
        assert!(errors.is_empty(), "{errors:?}");
        let plan = solve(&snapshot, &SolveSettings::default()).plan;
        check(&snapshot, &plan).expect("a valid plan");
        (snapshot, plan)
    }

    fn created(&self) -> Vec<NodeClaim> {
        let server = self.server.lock().unwrap();
        server
            .claims
            .values()
            .map(|claim| serde_json::from_value(claim.clone()).unwrap())
            .collect()
    }
}

#[tokio::test]
async fn a_burst_becomes_its_nodeclaims_once_even_though_every_fifth_creation_fails() {
    let world = World::new(Leadership::always());
    world.pool(&json!({}));
    world.pods(150);
    world.server.lock().unwrap().refuse_every = Some(5);
    let mut rounds = 0;
    loop {
        let (snapshot, plan) = world.plan();
        if plan.node_claims.is_empty() {
            break;
        }
        rounds += 1;
        assert!(rounds < 10, "the pods never found their place");
        let outcome = provision(&world.context, &snapshot, &plan).await;
        assert_eq!(outcome.created + outcome.failed, plan.node_claims.len());
        assert_eq!(
            outcome.failed == 0,
            rounds > 1,
            "two of ten, then none of two"
        );
    }
    // 16 vCPUs hold 15 pods of one: ten nodes, none of them twice.
    assert_eq!(world.created().len(), 10);
    assert_eq!(rounds, 2);
    let (snapshot, plan) = world.plan();
    assert!(
        plan.unschedulable.is_empty() && snapshot.pods.iter().all(|pod| pod.planned_on.is_some())
    );
    assert_eq!(
        world.context.state().usage("batch").get(&"nodes".into()),
        10
    );
}

#[tokio::test]
async fn equal_nodeclaims_share_a_launch_group_that_says_how_many_they_are() {
    let world = World::new(Leadership::always());
    world.pool(&json!({}));
    world.pods(45);
    let (snapshot, plan) = world.plan();
    provision(&world.context, &snapshot, &plan).await;
    let groups: BTreeSet<String> = world
        .created()
        .iter()
        .map(|claim| claim.metadata.annotations.as_ref().unwrap()[LAUNCH_GROUP].clone())
        .collect();
    assert_eq!(groups.len(), 1, "{groups:?}");
    assert!(
        groups.iter().all(|group| group.ends_with("/3")),
        "{groups:?}"
    );
}

#[tokio::test]
async fn who_does_not_lead_writes_nothing_and_remembers_nothing() {
    let (_elector, follower) =
        crate::leader::Elector::new(client(&Shared::default()), "n", "l", "me".to_owned());
    let world = World::new(follower);
    world.pool(&json!({}));
    world.pods(15);
    let (snapshot, plan) = world.plan();
    assert_eq!(plan.node_claims.len(), 1);
    let outcome = provision(&world.context, &snapshot, &plan).await;
    assert_eq!((outcome.created, outcome.failed), (0, 0));
    assert_eq!(world.server.lock().unwrap().creations, 0);
    assert!(world.context.state().planned_nodes().is_empty());
}

/// The plan was made within the limit; meanwhile others have used it up.
#[tokio::test]
async fn a_pool_over_its_limit_gets_no_further_nodeclaims() {
    let world = World::new(Leadership::always());
    world.pool(&json!({"cpu": "32"}));
    world.pods(30);
    let (snapshot, plan) = world.plan();
    assert_eq!(plan.node_claims.len(), 2);
    let other = json!({
        "apiVersion": "karpenter.sh/v1", "kind": "NodeClaim",
        "metadata": {"name": "other", "labels": {"karpenter.sh/nodepool": "batch"}},
        "spec": {"nodeClassRef": {"group": "karpenter.k8s.aws", "kind": "EC2NodeClass", "name": "default"}, "requirements": []},
        "status": {"providerID": "i-other", "capacity": {"cpu": "48"}},
    });
    // On the server as well, whatever the watch lists meanwhile.
    world
        .server
        .lock()
        .unwrap()
        .claims
        .insert("other".to_owned(), other.clone());
    let other: NodeClaim = serde_json::from_value(other).unwrap();
    world.context.state().apply_claim(&other).unwrap();
    world.plan();
    let outcome = provision(&world.context, &snapshot, &plan).await;
    assert_eq!((outcome.created, outcome.failed), (0, 2));
    assert_eq!(world.server.lock().unwrap().creations, 0);
}

#[tokio::test]
async fn a_nodeclaim_is_withdrawn_when_its_pods_are_gone_and_kept_while_one_waits_or_it_launched() {
    let world = World::new(Leadership::always());
    world.pool(&json!({}));
    world.pods(45);
    let (snapshot, plan) = world.plan();
    provision(&world.context, &snapshot, &plan).await;
    let names: Vec<String> = world
        .created()
        .iter()
        .map(|c| c.metadata.name.clone().unwrap())
        .collect();
    assert_eq!(names.len(), 3);
    // The first has launched; the pods of the first and of the second go.
    let launched = json!([{"type": "Launched", "status": "True", "reason": "Launched", "message": "",
        "lastTransitionTime": "2026-01-01T00:00:00Z"}]);
    world
        .server
        .lock()
        .unwrap()
        .claims
        .get_mut(&names[0])
        .unwrap()["status"] = json!({"conditions": launched});
    let (snapshot, _) = world.plan();
    // A fresh process lists the NodeClaims; only the pods of the third still wait.
    let next = World::on(&world.server, Leadership::always());
    tokio::time::timeout(Duration::from_secs(30), next.context.node_claims.synced())
        .await
        .expect("the list is answered at once");
    next.pods(45);
    for pod in snapshot.pods.iter() {
        let node = pod.planned_on.clone().expect("all are planned");
        if node.as_str() == names[2] {
            next.context.state().plan_pod(&pod.key, &pod.uid, node);
        }
    }
    withdraw_idle_claims(&next.context, crate::context::now()).await;
    let deletions = world.server.lock().unwrap().deletions.clone();
    let deleted: Vec<&str> = deletions.iter().map(|(name, _)| name.as_str()).collect();
    assert_eq!(deleted, [names[1].as_str()]);
    let expected = json!({"uid": format!("uid-{}", names[1]), "resourceVersion": "1"});
    assert_eq!(
        deletions[0].1["preconditions"], expected,
        "only exactly what we saw"
    );
}
