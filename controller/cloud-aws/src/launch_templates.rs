//! Launch templates: one per distinct set of parameters, named by a hash of them.
//!
//! Differs: templates are kept for as long as their class lives and are created without asking first
//! (decision D-012). Source: AWS specification 19.

use aws_sdk_ec2::types::builders::LaunchTemplateInstanceNetworkInterfaceSpecificationRequestBuilder as InterfaceBuilder;
use aws_sdk_ec2::types::{
    ConnectionTrackingSpecificationRequest, Filter, LaunchTemplateBlockDeviceMappingRequest,
    LaunchTemplateCpuOptionsRequest, LaunchTemplateEbsBlockDeviceRequest,
    LaunchTemplateEnclaveOptionsRequest, LaunchTemplateIamInstanceProfileSpecificationRequest,
    LaunchTemplateInstanceMetadataEndpointState, LaunchTemplateInstanceMetadataOptionsRequest,
    LaunchTemplateInstanceMetadataProtocolIpv6, LaunchTemplateInstanceMetadataTagsState,
    LaunchTemplateInstanceNetworkInterfaceSpecificationRequest, LaunchTemplatePlacementRequest,
    LaunchTemplateTagSpecificationRequest, LaunchTemplatesMonitoringRequest,
    RequestLaunchTemplateData, ResourceType, Tag, TagSpecification, Tenancy, VolumeType,
};
use millwright_api::{Ec2NodeClass, ec2_node_class::InterfaceType};
use millwright_cloud::{CloudError, ec2_errors, family};
use millwright_model::{CapacityType, Quantity};
use sha2::{Digest, Sha256};

use crate::{
    AwsProvider,
    errors::{cloud, code},
};

/// Parameters of a template.
#[derive(Debug)]
pub(crate) struct Parameters<'a> {
    pub(crate) class: &'a Ec2NodeClass,
    pub(crate) class_name: &'a str,
    pub(crate) image_id: &'a str,
    pub(crate) user_data: &'a str,
    pub(crate) capacity_type: CapacityType,
    pub(crate) tags: &'a std::collections::BTreeMap<String, String>,
    /// Interfaces with an Elastic Fabric Adapter, when the claim asks for one.
    pub(crate) efa: i64,
    /// Hardware of one's own.
    pub(crate) dedicated: bool,
    /// Nitro Enclaves are switched on.
    pub(crate) enclave: bool,
    /// The cluster's addresses are IPv6.
    pub(crate) ipv6: bool,
}

pub(crate) fn sdk_tags(tags: &std::collections::BTreeMap<String, String>) -> Vec<Tag> {
    tags.iter()
        .map(|(key, value)| Tag::builder().key(key).value(value).build())
        .collect()
}

impl AwsProvider {
    /// The name of a template with these parameters, which exists afterwards.
    pub(crate) async fn ensure_launch_template(
        &self,
        parameters: &Parameters<'_>,
    ) -> Result<String, CloudError> {
        let data = content(parameters);
        let name = name(&self.settings().cluster_name, parameters.class_name, &data);
        if self.is_known_template(&name) {
            return Ok(name);
        }
        let tags = TagSpecification::builder()
            .resource_type(ResourceType::LaunchTemplate)
            .set_tags(Some(sdk_tags(parameters.tags)))
            .build();
        let created = self
            .clients()
            .ec2
            .create_launch_template()
            .launch_template_name(&name)
            .launch_template_data(data)
            .tag_specifications(tags)
            .send()
            .await;
        match created {
            Ok(_) => {}
            Err(error) if code(&error) == ec2_errors::LAUNCH_TEMPLATE_EXISTS => {}
            Err(error) => return Err(cloud("create launch template", error)),
        }
        self.remember_template(&name);
        Ok(name)
    }

    /// Deletes the templates of a class.
    pub(crate) async fn delete_launch_templates(&self, class_name: &str) -> Result<(), CloudError> {
        let filter = |name: &str, value: &str| Filter::builder().name(name).values(value).build();
        let templates = self
            .clients()
            .ec2
            .describe_launch_templates()
            .filters(filter(
                "tag:eks:eks-cluster-name",
                &self.settings().cluster_name,
            ))
            .filters(filter("tag:karpenter.k8s.aws/ec2nodeclass", class_name))
            .into_paginator()
            .page_size(200)
            .items()
            .send()
            .try_collect()
            .await
            .map_err(|e| cloud("describe launch templates", e))?;
        for template in templates {
            let Some(name) = template.launch_template_name() else {
                continue;
            };
            self.forget_template(name);
            let deleted = self
                .clients()
                .ec2
                .delete_launch_template()
                .launch_template_name(name)
                .send()
                .await;
            if let Err(error) = deleted
                && !code(&error).contains("NotFound")
            {
                return Err(cloud(&format!("delete launch template {name}"), error));
            }
        }
        Ok(())
    }
}

/// A name that changes with the content; 64 bits of the hash, in decimal, as upstream's names look.
fn name(cluster: &str, class_name: &str, data: &RequestLaunchTemplateData) -> String {
    let mut hash = Sha256::new();
    for part in [cluster, class_name, &format!("{data:?}")] {
        hash.update(part.as_bytes());
        hash.update([0]);
    }
    let digest = hash.finalize();
    let number = digest
        .iter()
        .take(8)
        .fold(0_u64, |number, byte| (number << 8) | u64::from(*byte));
    format!("karpenter.k8s.aws/{number}")
}

fn content(parameters: &Parameters<'_>) -> RequestLaunchTemplateData {
    let spec = &parameters.class.spec;
    let status = parameters.class.status.clone().unwrap_or_default();
    let mut tag_specifications = vec![tag_specification(
        ResourceType::NetworkInterface,
        parameters,
    )];
    if parameters.capacity_type == CapacityType::Spot {
        tag_specifications.push(tag_specification(
            ResourceType::SpotInstancesRequest,
            parameters,
        ));
    }
    RequestLaunchTemplateData::builder()
        .image_id(parameters.image_id)
        .user_data(parameters.user_data)
        .iam_instance_profile(
            LaunchTemplateIamInstanceProfileSpecificationRequest::builder()
                .name(&status.instance_profile)
                .build(),
        )
        .monitoring(
            LaunchTemplatesMonitoringRequest::builder()
                .enabled(spec.detailed_monitoring.unwrap_or(false))
                .build(),
        )
        .metadata_options(metadata_options(parameters.class))
        .set_network_interfaces(Some(network_interfaces(parameters)))
        .placement(
            LaunchTemplatePlacementRequest::builder()
                .tenancy(if parameters.dedicated {
                    Tenancy::Dedicated
                } else {
                    Tenancy::Default
                })
                .build(),
        )
        .set_cpu_options(cpu_options(parameters.class))
        .set_enclave_options(parameters.enclave.then(|| {
            LaunchTemplateEnclaveOptionsRequest::builder()
                .enabled(true)
                .build()
        }))
        .set_block_device_mappings(block_devices(parameters.class))
        .set_tag_specifications(Some(tag_specifications))
        .build()
}

/// The class's interfaces, or one per adapter, or a single one. Subnets come from the overrides;
/// groups are on every interface.
fn network_interfaces(
    parameters: &Parameters<'_>,
) -> Vec<LaunchTemplateInstanceNetworkInterfaceSpecificationRequest> {
    let class = parameters.class;
    let groups = class
        .status
        .iter()
        .flat_map(|status| &status.security_groups);
    let groups: Vec<String> = groups.map(|group| group.id.clone()).collect();
    let interface = |device: i32| {
        LaunchTemplateInstanceNetworkInterfaceSpecificationRequest::builder()
            .device_index(device)
            .set_groups(Some(groups.clone()))
    };
    let with_addresses = |builder: InterfaceBuilder| addressed(parameters, builder);
    if !class.spec.network_interfaces.is_empty() {
        let own = class.spec.network_interfaces.iter();
        return own
            .map(|wanted| {
                let builder = interface(wanted.device_index)
                    .network_card_index(wanted.network_card_index)
                    .interface_type(wanted.interface_type.as_str());
                match wanted.interface_type {
                    InterfaceType::Interface => with_addresses(builder).build(),
                    InterfaceType::EfaOnly => builder.build(),
                }
            })
            .collect();
    }
    if parameters.efa > 0 {
        return (0..i32::try_from(parameters.efa).unwrap_or(0))
            .map(|card| {
                let builder = interface(i32::from(card > 0))
                    .network_card_index(card)
                    .interface_type("efa");
                with_addresses(builder).build()
            })
            .collect();
    }
    vec![with_addresses(interface(0)).build()]
}

/// What an interface with addresses of its own has besides.
fn addressed(parameters: &Parameters<'_>, builder: InterfaceBuilder) -> InterfaceBuilder {
    let spec = &parameters.class.spec;
    let tracking = spec.connection_tracking.as_ref().map(|tracking| {
        ConnectionTrackingSpecificationRequest::builder()
            .set_tcp_established_timeout(tracking.tcp_established_timeout)
            .set_udp_stream_timeout(tracking.udp_stream_timeout)
            .set_udp_timeout(tracking.udp_timeout)
            .build()
    });
    let builder = builder
        .set_associate_public_ip_address(spec.associate_public_ip_address)
        .set_connection_tracking_specification(tracking);
    if parameters.ipv6 {
        builder
            .primary_ipv6(true)
            .ipv6_address_count(1)
            .set_ipv6_prefix_count(spec.ip_prefix_count)
    } else {
        builder.set_ipv4_prefix_count(spec.ip_prefix_count)
    }
}

fn cpu_options(class: &Ec2NodeClass) -> Option<LaunchTemplateCpuOptionsRequest> {
    let wanted = class.spec.cpu_options.as_ref()?;
    let nested = wanted.nested_virtualization.as_deref()?;
    Some(
        LaunchTemplateCpuOptionsRequest::builder()
            .nested_virtualization(nested.into())
            .build(),
    )
}

fn tag_specification(
    kind: ResourceType,
    parameters: &Parameters<'_>,
) -> LaunchTemplateTagSpecificationRequest {
    LaunchTemplateTagSpecificationRequest::builder()
        .resource_type(kind)
        .set_tags(Some(sdk_tags(parameters.tags)))
        .build()
}

fn metadata_options(class: &Ec2NodeClass) -> LaunchTemplateInstanceMetadataOptionsRequest {
    let options = class.spec.metadata_options.clone().unwrap_or_default();
    LaunchTemplateInstanceMetadataOptionsRequest::builder()
        .http_endpoint(LaunchTemplateInstanceMetadataEndpointState::from(
            options.http_endpoint.as_str(),
        ))
        .http_protocol_ipv6(LaunchTemplateInstanceMetadataProtocolIpv6::from(
            options.http_protocol_ipv6.as_str(),
        ))
        .set_http_put_response_hop_limit(i32::try_from(options.http_put_response_hop_limit).ok())
        // Tag keys with a slash make EC2 refuse the launch where an account turns tags on.
        .instance_metadata_tags(LaunchTemplateInstanceMetadataTagsState::Disabled)
        .http_tokens(aws_sdk_ec2::types::LaunchTemplateHttpTokensState::from(
            options.http_tokens.as_str(),
        ))
        .build()
}

/// The class's devices, or the family's defaults; `None` when there are none (custom images).
fn block_devices(class: &Ec2NodeClass) -> Option<Vec<LaunchTemplateBlockDeviceMappingRequest>> {
    let own = &class.spec.block_device_mappings;
    let devices: Vec<LaunchTemplateBlockDeviceMappingRequest> = if own.is_empty() {
        family::default_devices(class.spec.resolved_ami_family())
            .iter()
            .map(|(device, gib)| {
                let ebs = LaunchTemplateEbsBlockDeviceRequest::builder()
                    .encrypted(true)
                    .volume_type(VolumeType::Gp3)
                    .set_volume_size(i32::try_from(*gib).ok())
                    .build();
                LaunchTemplateBlockDeviceMappingRequest::builder()
                    .device_name(*device)
                    .ebs(ebs)
                    .build()
            })
            .collect()
    } else {
        own.iter()
            .map(|mapping| {
                let ebs = mapping.ebs.as_ref().map(|ebs| {
                    LaunchTemplateEbsBlockDeviceRequest::builder()
                        .set_delete_on_termination(ebs.delete_on_termination)
                        .set_encrypted(ebs.encrypted)
                        .set_iops(
                            ebs.iops
                                .filter(|n| *n != 0)
                                .and_then(|n| i32::try_from(n).ok()),
                        )
                        .set_kms_key_id(ebs.kms_key_id.clone())
                        .set_snapshot_id(ebs.snapshot_id.clone())
                        .set_throughput(
                            ebs.throughput
                                .filter(|n| *n != 0)
                                .and_then(|n| i32::try_from(n).ok()),
                        )
                        .set_volume_size(ebs.volume_size.as_deref().and_then(gibibytes))
                        .set_volume_type(ebs.volume_type.as_deref().map(VolumeType::from))
                        .build()
                });
                LaunchTemplateBlockDeviceMappingRequest::builder()
                    .set_device_name(mapping.device_name.clone())
                    .set_ebs(ebs)
                    .build()
            })
            .collect()
    };
    (!devices.is_empty()).then_some(devices)
}

/// A quantity of bytes in whole GiB, rounded up.
fn gibibytes(text: &str) -> Option<i32> {
    let bytes = Quantity::parse(text).ok()?.units_ceil();
    i32::try_from((bytes + (1 << 30) - 1) >> 30).ok()
}
