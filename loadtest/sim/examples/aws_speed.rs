//! Measures the simulated AWS: how long the calls that scale tests depend on take, from the
//! request until the answer's head arrives. The server renders an answer before it sends the
//! head, so this is its time, without the client's reading of up to 20 MB.
//!
//! `cargo run -p millwright-sim --example aws_speed`. Targets: CreateFleet under 1 ms,
//! DescribeInstances of 5,000 under 100 ms. Prints, asserts nothing: machines differ.

use std::io::Write as _;
use std::time::{Duration, Instant};

use bytes::Bytes;
use http_body_util::{BodyExt as _, Full};
use hyper_util::client::legacy::Client;
use hyper_util::client::legacy::connect::HttpConnector;
use hyper_util::rt::TokioExecutor;
use millwright_sim::aws::{AwsSim, AwsSimConfig, AwsSimHandle, Timing};

/// Instances of the fleet that is described.
const INSTANCES: u32 = 5_000;
const CALLS: usize = 500;

struct Bench {
    sim: AwsSimHandle,
    client: Client<HttpConnector, Full<Bytes>>,
}

impl Bench {
    async fn call(&self, form: &str) -> anyhow::Result<(Duration, usize)> {
        let started = Instant::now();
        let form = format!("Version=2016-11-15&{form}");
        let request =
            http::Request::post(self.sim.endpoint()).body(Full::new(Bytes::from(form)))?;
        let response = self.client.request(request).await?;
        let took = started.elapsed();
        let status = response.status();
        let body = response.into_body().collect().await?.to_bytes();
        anyhow::ensure!(
            status.is_success(),
            "{status}: {}",
            String::from_utf8_lossy(&body)
        );
        Ok((took, body.len()))
    }

    /// Median and 95th percentile of repeated calls.
    async fn repeat(&self, name: &str, calls: usize, form: &str) -> anyhow::Result<()> {
        let mut times = Vec::with_capacity(calls);
        let mut bytes = 0;
        for _ in 0..calls {
            let (took, length) = self.call(form).await?;
            times.push(took);
            bytes = length;
        }
        times.sort();
        let at = |share: usize| times.get(calls * share / 100).copied().unwrap_or_default();
        writeln!(
            std::io::stdout(),
            "{name:<40} p50 {:>9.2?}  p95 {:>9.2?}  {bytes:>9} bytes",
            at(50),
            at(95)
        )?;
        Ok(())
    }

    /// CreateFleet with a number of overrides (at most one per type and zone).
    fn fleet(&self, count: u32, overrides: usize) -> String {
        let config = "LaunchTemplateConfigs.1";
        let mut form = format!(
            "Action=CreateFleet&Type=instant&{config}.LaunchTemplateSpecification.LaunchTemplateName=tpl\
             &TargetCapacitySpecification.TotalTargetCapacity={count}\
             &TargetCapacitySpecification.DefaultTargetCapacityType=spot\
             &SpotOptions.AllocationStrategy=price-capacity-optimized\
             &TagSpecification.1.ResourceType=instance&TagSpecification.1.Tag.1.Key=karpenter.sh/nodepool\
             &TagSpecification.1.Tag.1.Value=default"
        );
        let subnets = self.sim.world().subnets();
        let types = millwright_ec2_catalogue::facts().iter().filter(|facts| {
            facts.spot_supported
                && facts.architecture == millwright_ec2_catalogue::Architecture::Amd64
        });
        let pools = types.flat_map(|facts| {
            subnets
                .iter()
                .filter(|s| facts.zones.contains(s.zone.letter))
                .map(move |s| (facts, s))
        });
        for (at, (facts, subnet)) in pools.take(overrides).enumerate() {
            form += &format!(
                "&{config}.Overrides.{n}.InstanceType={}&{config}.Overrides.{n}.SubnetId={}\
                 &{config}.Overrides.{n}.AvailabilityZone={}",
                facts.name,
                subnet.id,
                subnet.zone.name,
                n = at + 1
            );
        }
        form
    }
}

#[tokio::main]
async fn main() -> anyhow::Result<()> {
    let mut config = AwsSimConfig::new("bench");
    config.timing = Timing::instant();
    config.subnet_prefix = 17;
    let client = Client::builder(TokioExecutor::new()).build_http();
    let bench = Bench {
        sim: AwsSim::start(config).await?,
        client,
    };
    let images = bench.sim.world().images();
    let image = images
        .iter()
        .find(|image| image.name.contains("al2023-x86_64-standard"));
    let image = image.map(|image| image.id.clone()).unwrap_or_default();
    let template = format!(
        "Action=CreateLaunchTemplate&LaunchTemplateName=tpl&LaunchTemplateData.ImageId={image}\
         &LaunchTemplateData.UserData={}",
        "QUFB".repeat(1_000)
    );
    bench.call(&template).await?;
    for overrides in [3, 60, 300] {
        let name = format!("CreateFleet, 1 instance, {overrides} overrides");
        bench
            .repeat(&name, CALLS, &bench.fleet(1, overrides))
            .await?;
    }
    bench.sim.world().reset();
    bench.call(&template).await?;
    let (took, _) = bench.call(&bench.fleet(INSTANCES, 60)).await?;
    writeln!(
        std::io::stdout(),
        "CreateFleet of {INSTANCES:<27} once {took:>9.2?}"
    )?;
    let filter = "Filter.1.Name=tag-key&Filter.1.Value.1=karpenter.sh/nodepool";
    let describe = format!("Action=DescribeInstances&{filter}");
    let name = format!("DescribeInstances, {INSTANCES} at once");
    bench.repeat(&name, 20, &describe).await?;
    bench
        .repeat(
            "DescribeInstances, a page of 1,000",
            20,
            &format!("{describe}&MaxResults=1000"),
        )
        .await?;
    let id = bench
        .sim
        .world()
        .instances()
        .first()
        .map(|i| i.id.to_string())
        .unwrap_or_default();
    bench
        .repeat(
            "DescribeInstances, by id",
            CALLS,
            &format!("Action=DescribeInstances&InstanceId.1={id}"),
        )
        .await?;
    bench
        .repeat(
            "DescribeInstanceTypes, a page of 100",
            50,
            "Action=DescribeInstanceTypes",
        )
        .await
}
