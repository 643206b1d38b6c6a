//! Whether we may launch for a class, asked without launching.
//!
//! EC2 judges permissions first when a call is a dry run, so the calls need not be launchable. They
//! carry the tags of a real launch, because that is what the usual policies look at.
//!
//! Source: AWS specification 5.8.

use aws_sdk_ec2::{
    error::{ProvideErrorMetadata, SdkError},
    types::{
        DefaultTargetCapacityType, FleetLaunchTemplateConfigRequest,
        FleetLaunchTemplateOverridesRequest, FleetLaunchTemplateSpecificationRequest, FleetType,
        IamInstanceProfileSpecification, InstanceType, RequestLaunchTemplateData, ResourceType,
        Tag, TagSpecification, TargetCapacitySpecificationRequest,
    },
};
use millwright_api::{
    Ec2NodeClass, Ec2NodeClassStatus,
    ec2_node_class::{Ami, Subnet},
};
use millwright_cloud::{
    CloudError, CloudErrorKind, ec2_errors,
    shape::{name_of, uid_of},
    tags,
};

use crate::{
    AwsProvider, Verdict,
    errors::{cloud, code},
    launch_templates::sdk_tags,
};

/// Name of the template that the rehearsals speak of; it never exists.
const TEMPLATE: &str = "karpenter.k8s.aws/permission-check";

/// What the rehearsals are about.
struct Rehearsal<'a> {
    class: &'a Ec2NodeClass,
    profile: &'a str,
    subnet: &'a Subnet,
    image: &'a Ami,
    tags: Vec<Tag>,
}

impl AwsProvider {
    /// The verdict about a resolved class; believed for a while, and asked again when the class, its
    /// annotations or what it resolves to change.
    pub(crate) async fn check_permissions(
        &self,
        class: &Ec2NodeClass,
        status: &Ec2NodeClassStatus,
    ) -> Result<Verdict, CloudError> {
        let key = format!(
            "{}/{:?}/{:?}/{status:?}",
            uid_of(class),
            class.metadata.generation,
            class.metadata.annotations,
        );
        if let Some(known) = self.known_verdict(&key) {
            return Ok(known);
        }
        let (Some(subnet), Some(image)) = (status.subnets.first(), status.amis.first()) else {
            return Ok(Ok(()));
        };
        let name = name_of(class);
        // The tag of the NodePool is empty, which still satisfies a condition on its presence.
        let launch_tags = tags::of_launch(class, name, &self.settings().cluster_name, None);
        let rehearsal = Rehearsal {
            class,
            profile: &status.instance_profile,
            subnet,
            image,
            tags: sdk_tags(&launch_tags),
        };
        let mut verdict = self.may_create_template(&rehearsal).await?;
        if verdict.is_ok() {
            verdict = self.may_create_fleet(&rehearsal).await?;
        }
        if verdict.is_ok() {
            verdict = self.may_run_instances(&rehearsal).await?;
        }
        self.remember_verdict(key, verdict.clone());
        Ok(verdict)
    }

    async fn may_create_template(&self, rehearsal: &Rehearsal<'_>) -> Result<Verdict, CloudError> {
        let data = RequestLaunchTemplateData::builder()
            .image_id(&rehearsal.image.id)
            .build();
        let call = self
            .clients()
            .ec2_once
            .create_launch_template()
            .dry_run(true)
            .launch_template_name(TEMPLATE)
            .launch_template_data(data)
            .tag_specifications(rehearsal.tagged(ResourceType::LaunchTemplate));
        judge(
            "CreateLaunchTemplate",
            "CreateLaunchTemplateAuthCheckFailed",
            call.send().await,
        )
    }

    async fn may_create_fleet(&self, rehearsal: &Rehearsal<'_>) -> Result<Verdict, CloudError> {
        let template = FleetLaunchTemplateSpecificationRequest::builder()
            .launch_template_name(TEMPLATE)
            .version("$Latest")
            .build();
        let line = FleetLaunchTemplateOverridesRequest::builder()
            .instance_type(rehearsal.instance_type())
            .subnet_id(&rehearsal.subnet.id)
            .build();
        let config = FleetLaunchTemplateConfigRequest::builder()
            .launch_template_specification(template)
            .overrides(line)
            .build();
        let target = TargetCapacitySpecificationRequest::builder()
            .total_target_capacity(1)
            .default_target_capacity_type(DefaultTargetCapacityType::OnDemand)
            .build();
        let mut call = self
            .clients()
            .ec2_once
            .create_fleet()
            .dry_run(true)
            .r#type(FleetType::Instant)
            .launch_template_configs(config)
            .target_capacity_specification(target);
        for kind in [
            ResourceType::Instance,
            ResourceType::Volume,
            ResourceType::Fleet,
        ] {
            call = call.tag_specifications(rehearsal.tagged(kind));
        }
        judge(
            "CreateFleet",
            "CreateFleetAuthCheckFailed",
            call.send().await,
        )
    }

    async fn may_run_instances(&self, rehearsal: &Rehearsal<'_>) -> Result<Verdict, CloudError> {
        let profile = IamInstanceProfileSpecification::builder()
            .name(rehearsal.profile)
            .build();
        let mut call = self
            .clients()
            .ec2_once
            .run_instances()
            .dry_run(true)
            .min_count(1)
            .max_count(1)
            .image_id(&rehearsal.image.id)
            .instance_type(rehearsal.instance_type())
            .iam_instance_profile(profile)
            .subnet_id(&rehearsal.subnet.id);
        for kind in [
            ResourceType::Instance,
            ResourceType::Volume,
            ResourceType::NetworkInterface,
        ] {
            call = call.tag_specifications(rehearsal.tagged(kind));
        }
        let tried = call.send().await;
        if let Err(error) = &tried
            && error
                .message()
                .is_some_and(|m| m.contains("Invalid IAM Instance Profile name"))
        {
            // A profile that was just made takes a while to be known everywhere.
            let Some(own) = &rehearsal.class.spec.instance_profile else {
                let message = format!("instance profile {} is not known yet", rehearsal.profile);
                let kind = CloudErrorKind::Transient;
                return Err(CloudError::new(kind, "InstanceProfileNotReady", message));
            };
            return Ok(Err((
                "InstanceProfileNotFound",
                format!("Instance profile \"{own}\" not found"),
            )));
        }
        judge("RunInstances", "RunInstancesAuthCheckFailed", tried)
    }
}

impl Rehearsal<'_> {
    fn tagged(&self, kind: ResourceType) -> TagSpecification {
        TagSpecification::builder()
            .resource_type(kind)
            .set_tags(Some(self.tags.clone()))
            .build()
    }

    /// A type that every region has and the image can start.
    fn instance_type(&self) -> InstanceType {
        let arm = self
            .image
            .requirements
            .iter()
            .any(|r| r.values.iter().any(|v| v == "arm64"));
        if arm {
            InstanceType::M6gLarge
        } else {
            InstanceType::M5Large
        }
    }
}

/// What the answer to a dry run says about permissions.
fn judge<T, E, R>(
    api: &str,
    reason: &'static str,
    tried: Result<T, SdkError<E, R>>,
) -> Result<Verdict, CloudError>
where
    E: ProvideErrorMetadata + std::error::Error + Send + Sync + 'static,
    R: std::fmt::Debug + Send + Sync + 'static,
{
    let Err(error) = tried else { return Ok(Ok(())) };
    match code(&error).as_str() {
        ec2_errors::DRY_RUN_OK => Ok(Ok(())),
        "UnauthorizedOperation" => {
            let text = format!(
                "UnauthorizedOperation: {}",
                error.message().unwrap_or_default()
            );
            let (_, message) = ec2_errors::explain(&text);
            Ok(Err((
                reason,
                format!("Controller isn't authorized to call ec2:{api}: {message}"),
            )))
        }
        _ => {
            let error = cloud(&format!("check permission for {api}"), error);
            match error.kind {
                CloudErrorKind::Throttled | CloudErrorKind::Transient => Err(error),
                // Anything else says nothing about permissions; the launch itself will tell.
                _ => Ok(Ok(())),
            }
        }
    }
}
