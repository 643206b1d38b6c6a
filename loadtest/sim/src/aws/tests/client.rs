//! A simulator under test, and a client for it.

use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use http::{Method, Request};
use http_body_util::{BodyExt as _, Full};
use hyper_util::client::legacy::Client;
use hyper_util::client::legacy::connect::HttpConnector;
use hyper_util::rt::TokioExecutor;
use serde_json::Value;

use crate::aws::{AwsSim, AwsSimConfig, AwsSimHandle, AwsWorld, ManualClock};

/// Status and body of an answer.
#[derive(Debug)]
pub(super) struct Answer {
    pub(super) status: u16,
    pub(super) body: String,
}

impl Answer {
    /// Texts of all elements of a name, in order.
    pub(super) fn all(&self, name: &str) -> Vec<&str> {
        let (open, close) = (format!("<{name}>"), format!("</{name}>"));
        self.body
            .split(&open)
            .skip(1)
            .filter_map(|rest| rest.split(&close).next())
            .collect()
    }

    /// The text of the first element of a name.
    pub(super) fn first(&self, name: &str) -> Option<&str> {
        self.all(name).first().copied()
    }

    /// The error code of an XML answer; empty for a success.
    pub(super) fn code(&self) -> &str {
        if self.status == 200 {
            ""
        } else {
            self.first("Code").unwrap_or("no code")
        }
    }

    pub(super) fn json(&self) -> Value {
        serde_json::from_str(&self.body).unwrap_or_else(|error| panic!("{error}: {}", self.body))
    }

    /// The answer, which must be a success.
    pub(super) fn ok(self) -> Self {
        assert_eq!(self.status, 200, "{}", self.body);
        self
    }
}

/// A simulator on a clock that stands still.
pub(super) struct Rig {
    pub(super) clock: ManualClock,
    pub(super) world: AwsWorld,
    handle: AwsSimHandle,
    client: Client<HttpConnector, Full<Bytes>>,
}

impl Rig {
    pub(super) async fn new() -> Self {
        Self::with(|_| {}).await
    }

    pub(super) async fn with(change: impl FnOnce(&mut AwsSimConfig)) -> Self {
        let clock = ManualClock::default();
        let mut config = AwsSimConfig::new("c");
        config.clock = Arc::new(clock.clone());
        change(&mut config);
        let handle = AwsSim::start(config)
            .await
            .expect("a free port on loopback");
        let client = Client::builder(TokioExecutor::new()).build_http();
        Self {
            clock,
            world: handle.world(),
            handle,
            client,
        }
    }

    pub(super) fn pass(&self, seconds: u64) {
        self.clock.advance(Duration::from_secs(seconds));
    }

    /// Sends a request. `None`: the connection broke.
    pub(super) async fn try_send(
        &self,
        method: Method,
        path: &str,
        headers: &[(&str, &str)],
        body: String,
    ) -> Option<Answer> {
        let mut request = Request::builder()
            .method(method)
            .uri(format!("{}{path}", self.handle.endpoint()));
        for (name, value) in headers {
            request = request.header(*name, *value);
        }
        let request = request
            .body(Full::new(Bytes::from(body)))
            .expect("a well-formed request");
        let response = self.client.request(request).await.ok()?;
        let status = response.status().as_u16();
        let body = response.into_body().collect().await.ok()?.to_bytes();
        Some(Answer {
            status,
            body: String::from_utf8(body.to_vec()).expect("UTF-8"),
        })
    }

    pub(super) async fn ec2(&self, action: &str, parameters: &str) -> Answer {
        self.try_ec2(action, parameters).await.expect("an answer")
    }

    pub(super) async fn try_ec2(&self, action: &str, parameters: &str) -> Option<Answer> {
        let form = format!("Action={action}&Version=2016-11-15&{parameters}");
        self.try_send(Method::POST, "/", &[], form).await
    }

    pub(super) async fn iam(&self, action: &str, parameters: &str) -> Answer {
        let form = format!("Action={action}&Version=2010-05-08&{parameters}");
        self.try_send(Method::POST, "/", &[], form)
            .await
            .expect("an answer")
    }

    pub(super) async fn target(&self, target: &str, input: Value) -> Answer {
        let headers = [("x-amz-target", target)];
        self.try_send(Method::POST, "/", &headers, input.to_string())
            .await
            .expect("an answer")
    }

    pub(super) async fn steer(&self, path: &str, input: Value) -> Answer {
        let path = format!("/_sim/{path}");
        self.try_send(Method::POST, &path, &[], input.to_string())
            .await
            .expect("an answer")
    }

    /// The recommended AL2023 image of an architecture.
    pub(super) async fn image(&self, architecture: &str) -> String {
        let name = format!(
            "/aws/service/eks/optimized-ami/1.34/amazon-linux-2023/{architecture}/standard/recommended/image_id"
        );
        let answer = self
            .target(
                "AmazonSSM.GetParameter",
                serde_json::json!({ "Name": name }),
            )
            .await;
        answer.ok().json()["Parameter"]["Value"]
            .as_str()
            .expect("a text")
            .to_owned()
    }

    /// Makes a launch template with an x86 image and the node group.
    pub(super) async fn template(&self, name: &str) {
        let image = self.image("x86_64").await;
        let group = self.world.security_groups()[0].id.clone();
        let parameters = format!(
            "LaunchTemplateName={name}&LaunchTemplateData.ImageId={image}\
             &LaunchTemplateData.UserData=QUJD\
             &LaunchTemplateData.NetworkInterface.1.DeviceIndex=0\
             &LaunchTemplateData.NetworkInterface.1.SecurityGroupId.1={group}\
             &LaunchTemplateData.BlockDeviceMapping.1.DeviceName=/dev/xvda\
             &LaunchTemplateData.BlockDeviceMapping.1.Ebs.VolumeSize=20\
             &LaunchTemplateData.MetadataOptions.HttpTokens=required\
             &TagSpecification.1.ResourceType=launch-template\
             &TagSpecification.1.Tag.1.Key=team&TagSpecification.1.Tag.1.Value=a"
        );
        self.ec2("CreateLaunchTemplate", &parameters).await.ok();
    }

    /// The subnet of a zone letter.
    pub(super) fn subnet(&self, letter: char) -> String {
        let subnets = self.world.subnets();
        let subnet = subnets.iter().find(|subnet| subnet.zone.letter == letter);
        subnet.expect("a subnet in every zone").id.to_string()
    }

    /// Parameters of CreateFleet with template `tpl`: pools of type and zone letter.
    pub(super) fn fleet(&self, count: u32, capacity_type: &str, pools: &[(&str, char)]) -> String {
        let mut form = format!(
            "Type=instant&LaunchTemplateConfigs.1.LaunchTemplateSpecification.LaunchTemplateName=tpl\
             &LaunchTemplateConfigs.1.LaunchTemplateSpecification.Version=%24Latest\
             &TargetCapacitySpecification.TotalTargetCapacity={count}\
             &TargetCapacitySpecification.DefaultTargetCapacityType={capacity_type}\
             &TagSpecification.1.ResourceType=instance\
             &TagSpecification.1.Tag.1.Key=pool&TagSpecification.1.Tag.1.Value=p"
        );
        for (at, (instance_type, letter)) in pools.iter().enumerate() {
            let over = format!("LaunchTemplateConfigs.1.Overrides.{}", at + 1);
            form += &format!(
                "&{over}.InstanceType={instance_type}&{over}.SubnetId={}\
                 &{over}.AvailabilityZone=us-east-1{letter}&{over}.Priority={}",
                self.subnet(*letter),
                pools.len() - at
            );
        }
        form
    }

    /// Launches on-demand instances of one pool and gives their ids.
    pub(super) async fn launch(&self, count: u32) -> Vec<String> {
        let form = self.fleet(count, "on-demand", &[("m5.large", 'a')]);
        let answer = self.ec2("CreateFleet", &form).await.ok();
        ids(&answer)
    }
}

/// Ids of the instances of a fleet.
pub(super) fn ids(answer: &Answer) -> Vec<String> {
    answer
        .all("instanceIds")
        .iter()
        .flat_map(|list| list.split("<item>").skip(1))
        .filter_map(|item| item.split('<').next())
        .map(str::to_owned)
        .collect()
}
