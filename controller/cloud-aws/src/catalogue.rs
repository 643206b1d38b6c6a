//! Instance types, the zones that sell them, and prices, as the account sees them.

use std::{
    collections::BTreeMap,
    time::{Duration, Instant, SystemTime},
};

use aws_sdk_ec2::types::{
    ArchitectureType, Filter, InstanceTypeInfo, LocationType, UsageClassType,
};
use millwright_cloud::{
    CloudError,
    facts::{AcceleratorFacts, GpuFacts, InstanceTypeFacts, NeuronFacts, ProcessorFacts},
    instance_types::RegionalType,
    pricing::{self, Prices},
};
use millwright_model::Name;

use crate::{clients::Clients, errors::cloud};

/// Types, zones and on-demand prices are read again this often.
const TYPES_EVERY: Duration = Duration::from_secs(12 * 3600);
/// Spot prices are read again this often.
const SPOT_EVERY: Duration = Duration::from_secs(5 * 60);
/// Spot prices of this long ago are asked for; the newest of each pool counts.
const SPOT_WINDOW: Duration = Duration::from_secs(3600);

/// What the account sees.
#[derive(Debug)]
pub(crate) struct Catalogue {
    pub(crate) types: Vec<RegionalType>,
    pub(crate) prices: Prices,
    types_due: Option<Instant>,
    spot_due: Option<Instant>,
}

impl Default for Catalogue {
    fn default() -> Self {
        Self {
            types: Vec::new(),
            prices: Prices::of_catalogue(),
            types_due: None,
            spot_due: None,
        }
    }
}

/// What a refresh brought; parts that were not due are absent.
#[derive(Debug, Default)]
pub(crate) struct Refreshed {
    types: Option<Vec<RegionalType>>,
    on_demand: Option<Vec<(Name, millwright_model::NanoDollarsPerHour)>>,
    spot: Option<Vec<(Name, Name, millwright_model::NanoDollarsPerHour)>>,
}

impl Catalogue {
    /// Which parts are due: types with on-demand prices, Spot prices.
    pub(crate) fn due(&self) -> (bool, bool) {
        let now = Instant::now();
        let is_due = |at: Option<Instant>| at.is_none_or(|at| at <= now);
        (is_due(self.types_due), is_due(self.spot_due))
    }

    /// Takes a refresh in; says whether anything changed.
    pub(crate) fn merge(&mut self, refreshed: Refreshed) -> bool {
        let mut changed = false;
        if let Some(types) = refreshed.types {
            changed |= types != self.types;
            self.types = types;
            self.types_due = Some(Instant::now() + TYPES_EVERY);
        }
        if let Some(prices) = refreshed.on_demand {
            changed |= self.prices.merge_on_demand(prices);
        }
        if let Some(prices) = refreshed.spot {
            changed |= self.prices.merge_spot(prices);
            self.spot_due = Some(Instant::now() + SPOT_EVERY);
        }
        changed
    }
}

/// Reads what is due.
pub(crate) async fn read(
    clients: &Clients,
    due: (bool, bool),
    isolated: bool,
) -> Result<Refreshed, CloudError> {
    let mut refreshed = Refreshed::default();
    if due.0 {
        refreshed.types = Some(types(clients).await?);
        if !isolated && pricing::has_api(&clients.region) {
            // Without the price list the embedded prices stay in use.
            match on_demand(clients).await {
                Ok(prices) => refreshed.on_demand = Some(prices),
                Err(error) => {
                    tracing::warn!(%error, "price list could not be read, known prices stay in use");
                }
            }
        }
    }
    if due.1 {
        refreshed.spot = Some(spot(clients).await?);
    }
    Ok(refreshed)
}

fn filter(name: &str, values: &[&str]) -> Filter {
    Filter::builder()
        .name(name)
        .set_values(Some(values.iter().map(ToString::to_string).collect()))
        .build()
}

async fn types(clients: &Clients) -> Result<Vec<RegionalType>, CloudError> {
    let infos: Vec<InstanceTypeInfo> = clients
        .ec2
        .describe_instance_types()
        .filters(filter("supported-virtualization-type", &["hvm"]))
        .filters(filter(
            "processor-info.supported-architecture",
            &["x86_64", "arm64"],
        ))
        .into_paginator()
        .page_size(100)
        .items()
        .send()
        .try_collect()
        .await
        .map_err(|e| cloud("describe instance types", e))?;
    let offerings = clients
        .ec2
        .describe_instance_type_offerings()
        .location_type(LocationType::AvailabilityZone)
        .into_paginator()
        .page_size(1000)
        .items()
        .send()
        .try_collect()
        .await
        .map_err(|e| cloud("describe instance type offerings", e))?;
    let mut zones: BTreeMap<String, Vec<Name>> = BTreeMap::new();
    for offering in offerings {
        if let (Some(kind), Some(zone)) = (offering.instance_type(), offering.location()) {
            zones
                .entry(kind.as_str().to_owned())
                .or_default()
                .push(zone.into());
        }
    }
    let mut types: Vec<RegionalType> = infos
        .iter()
        .filter_map(|info| {
            let facts = facts(info)?;
            let mut zones = zones.remove(&*facts.name).unwrap_or_default();
            zones.sort_unstable();
            Some(RegionalType { facts, zones })
        })
        .collect();
    types.sort_by(|a, b| a.facts.name.cmp(&b.facts.name));
    Ok(types)
}

fn count(value: Option<i32>) -> u32 {
    value
        .and_then(|value| u32::try_from(value).ok())
        .unwrap_or(0)
}

fn amount(value: Option<i64>) -> u64 {
    value
        .and_then(|value| u64::try_from(value).ok())
        .unwrap_or(0)
}

/// The facts of one type; `None` for a type without a name.
fn facts(info: &InstanceTypeInfo) -> Option<InstanceTypeFacts> {
    let name = info.instance_type()?.as_str();
    let sold = |class: UsageClassType| info.supported_usage_classes().contains(&class);
    let processor = info.processor_info();
    let architectures = processor
        .map(|p| p.supported_architectures())
        .unwrap_or_default();
    Some(InstanceTypeFacts {
        architectures: architectures
            .iter()
            .filter(|a| matches!(a, ArchitectureType::X8664 | ArchitectureType::Arm64))
            .map(|a| a.as_str().into())
            .collect(),
        vcpus: count(info.v_cpu_info().and_then(|v| v.default_v_cpus())),
        memory_mib: amount(info.memory_info().and_then(|m| m.size_in_mib())),
        on_demand: sold(UsageClassType::OnDemand),
        spot: sold(UsageClassType::Spot),
        hypervisor: info.hypervisor().map_or("", |h| h.as_str()).into(),
        processor: processor.map(|p| ProcessorFacts {
            manufacturer: p.manufacturer().unwrap_or_default().into(),
            sustained_clock_mhz: p.sustained_clock_speed_in_ghz().and_then(mhz),
            features: p
                .supported_features()
                .iter()
                .map(|f| f.as_str().into())
                .collect(),
        }),
        nitro_enclaves: info
            .nitro_enclaves_support()
            .is_some_and(|s| s.as_str() == "supported"),
        gpus: gpus(info),
        inference_accelerators: accelerators(info),
        neuron_devices: neurons(info),
        instance_store_gb: info
            .instance_storage_info()
            .and_then(|s| s.total_size_in_gb())
            .map(|gb| amount(Some(gb))),
        instance_store_nvme: info
            .instance_storage_info()
            .and_then(|s| s.nvme_support())
            .is_some_and(|support| support.as_str() != "unsupported"),
        ebs_bandwidth_mbps: info
            .ebs_info()
            .filter(|ebs| {
                ebs.ebs_optimized_support()
                    .is_some_and(|s| s.as_str() == "default")
            })
            .and_then(|ebs| ebs.ebs_optimized_info())
            .and_then(|ebs| ebs.maximum_bandwidth_in_mbps())
            .map(|mbps| u64::from(count(Some(mbps)))),
        // EC2 does not report trunking; the embedded facts know it for the types they have.
        branch_interfaces: embedded_branch_interfaces(name),
        placement_strategies: info
            .placement_group_info()
            .map(|p| {
                p.supported_strategies()
                    .iter()
                    .map(|s| s.as_str().into())
                    .collect()
            })
            .unwrap_or_default(),
        ..network_facts(info)
    })
}

/// The facts about a type's network, and its name.
fn network_facts(info: &InstanceTypeInfo) -> InstanceTypeFacts {
    let network = info.network_info();
    let name = info.instance_type().map_or("", |name| name.as_str());
    let embedded = millwright_ec2_catalogue::by_name(name);
    InstanceTypeFacts {
        name: name.into(),
        encryption_in_transit: network
            .and_then(|n| n.encryption_in_transit_supported())
            .unwrap_or(false),
        // The documented figure is what nodes have always been labelled with; what EC2 reports
        // per card differs from it for some types.
        network_bandwidth_mbps: embedded
            .and_then(|facts| facts.network_mbps)
            .or_else(|| network.and_then(bandwidth)),
        network_cards: network
            .map(|n| n.network_cards())
            .unwrap_or_default()
            .iter()
            .map(|card| count(card.maximum_network_interfaces()))
            .collect(),
        default_network_card: network
            .and_then(|n| n.default_network_card_index())
            .and_then(|at| usize::try_from(at).ok())
            .unwrap_or(0),
        ipv4_per_interface: count(network.and_then(|n| n.ipv4_addresses_per_interface())),
        max_efa: count(
            network
                .and_then(|n| n.efa_info())
                .and_then(|e| e.maximum_efa_interfaces()),
        ),
        ena: network
            .and_then(|n| n.ena_support())
            .is_some_and(|s| s.as_str() != "unsupported"),
        ..InstanceTypeFacts::default()
    }
}

fn embedded_branch_interfaces(name: &str) -> u32 {
    millwright_ec2_catalogue::by_name(name)
        .map_or(0, |facts| InstanceTypeFacts::from(facts).branch_interfaces)
}

/// Gigahertz with decimals to whole megahertz.
fn mhz(ghz: f64) -> Option<u64> {
    let mhz = (ghz * 1000.0).round();
    #[expect(
        clippy::cast_possible_truncation,
        clippy::cast_sign_loss,
        reason = "the range is checked, and EC2 reports gigahertz as a float"
    )]
    (1.0..1e6).contains(&mhz).then_some(mhz as u64)
}

fn bandwidth(network: &aws_sdk_ec2::types::NetworkInfo) -> Option<u64> {
    let gbps: f64 = network
        .network_cards()
        .iter()
        .filter_map(|card| card.baseline_bandwidth_in_gbps())
        .sum();
    mhz(gbps)
}

fn gpus(info: &InstanceTypeInfo) -> Vec<GpuFacts> {
    let gpus = info.gpu_info().map(|g| g.gpus()).unwrap_or_default();
    gpus.iter()
        .map(|gpu| GpuFacts {
            name: gpu.name().unwrap_or_default().into(),
            manufacturer: gpu.manufacturer().unwrap_or_default().into(),
            count: count(gpu.count()),
            memory_mib: u64::from(count(gpu.memory_info().and_then(|m| m.size_in_mib()))),
        })
        .collect()
}

fn accelerators(info: &InstanceTypeInfo) -> Vec<AcceleratorFacts> {
    let list = info
        .inference_accelerator_info()
        .map(|i| i.accelerators())
        .unwrap_or_default();
    list.iter()
        .map(|accelerator| AcceleratorFacts {
            name: accelerator.name().unwrap_or_default().into(),
            manufacturer: accelerator.manufacturer().unwrap_or_default().into(),
            count: count(accelerator.count()),
        })
        .collect()
}

fn neurons(info: &InstanceTypeInfo) -> Vec<NeuronFacts> {
    let list = info
        .neuron_info()
        .map(|n| n.neuron_devices())
        .unwrap_or_default();
    list.iter()
        .map(|device| NeuronFacts {
            name: device.name().unwrap_or_default().into(),
            count: count(device.count()),
            cores: count(device.core_info().and_then(|c| c.count())),
        })
        .collect()
}

/// List prices: shared hardware, and bare metal, which the list keeps under another tenancy.
async fn on_demand(
    clients: &Clients,
) -> Result<Vec<(Name, millwright_model::NanoDollarsPerHour)>, CloudError> {
    let mut prices = price_list(clients, "Compute Instance (bare metal)", "Dedicated").await?;
    prices.extend(price_list(clients, "Compute Instance", "Shared").await?);
    Ok(prices)
}

async fn price_list(
    clients: &Clients,
    family: &str,
    tenancy: &str,
) -> Result<Vec<(Name, millwright_model::NanoDollarsPerHour)>, CloudError> {
    use aws_sdk_pricing::types::{Filter, FilterType};
    let filters = [
        ("regionCode", clients.region.as_str()),
        ("serviceCode", "AmazonEC2"),
        ("preInstalledSw", "NA"),
        ("operatingSystem", "Linux"),
        ("capacitystatus", "Used"),
        ("marketoption", "OnDemand"),
        ("tenancy", tenancy),
        ("productFamily", family),
    ]
    .into_iter()
    .map(|(field, value)| {
        let filter = Filter::builder().field(field).value(value);
        filter.r#type(FilterType::TermMatch).build()
    })
    .collect::<Result<Vec<_>, _>>()
    .map_err(|_| crate::errors::incomplete("price list filter"))?;
    let entries: Vec<String> = clients
        .pricing
        .get_products()
        .service_code("AmazonEC2")
        .set_filters(Some(filters))
        .into_paginator()
        .items()
        .send()
        .try_collect()
        .await
        .map_err(|e| cloud("read price list", e))?;
    let currency = pricing::currency(&clients.region);
    Ok(entries
        .iter()
        .filter_map(|entry| pricing::read_entry(entry, currency))
        .collect())
}

async fn spot(
    clients: &Clients,
) -> Result<Vec<(Name, Name, millwright_model::NanoDollarsPerHour)>, CloudError> {
    let start = SystemTime::now() - SPOT_WINDOW;
    let history = clients
        .ec2
        .describe_spot_price_history()
        .product_descriptions("Linux/UNIX")
        .start_time(start.into())
        .into_paginator()
        .page_size(1000)
        .items()
        .send()
        .try_collect()
        .await
        .map_err(|e| cloud("describe spot price history", e))?;
    let mut newest: BTreeMap<(Name, Name), (i64, millwright_model::NanoDollarsPerHour)> =
        BTreeMap::new();
    for entry in history {
        let (Some(kind), Some(zone), Some(price), Some(at)) = (
            entry.instance_type(),
            entry.availability_zone(),
            entry.spot_price().and_then(pricing::parse_price),
            entry.timestamp(),
        ) else {
            continue;
        };
        let slot = newest
            .entry((kind.as_str().into(), zone.into()))
            .or_insert_with(|| (at.secs(), price));
        if at.secs() > slot.0 {
            *slot = (at.secs(), price);
        }
    }
    Ok(newest
        .into_iter()
        .map(|((kind, zone), (_, price))| (kind, zone, price))
        .collect())
}
