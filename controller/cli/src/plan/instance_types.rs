//! `--instance-types FILE`: a catalogue in the format of Karpenter's KWOK provider.
//!
//! Shape: a JSON list of `{name, offerings: [{capacityType, zone, price, available?}], architecture,
//! operatingSystems, resources, overhead?}`. Resources are capacity; overhead is subtracted only
//! where given; `pods` defaults to 110.

use std::{collections::BTreeMap, collections::BTreeSet, sync::Arc};

use millwright_model::{
    CapacityType, InstanceType, Name, NanoDollarsPerHour, Offering, Operator, Quantity,
    Requirement, Requirements, ResourceName, Resources, instance_type::InstanceTypes, labels,
};
use serde::Deserialize;
use serde_json::Value;

/// Pods per node where the catalogue does not say: the kubelet's default.
const DEFAULT_PODS: i64 = 110;

#[derive(Debug, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
struct Entry {
    name: String,
    offerings: Vec<EntryOffering>,
    architecture: String,
    operating_systems: Vec<String>,
    resources: BTreeMap<String, Value>,
    #[serde(default)]
    overhead: BTreeMap<String, Value>,
}

#[derive(Debug, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
struct EntryOffering {
    capacity_type: String,
    zone: String,
    price: f64,
    #[serde(default = "yes")]
    available: bool,
}

const fn yes() -> bool {
    true
}

/// Reads a catalogue.
///
/// # Errors
/// One line that names the file and the path of the first bad field.
pub fn parse(file: &str, bytes: &[u8]) -> Result<InstanceTypes, String> {
    let mut deserializer = serde_json::Deserializer::from_slice(bytes);
    let entries: Vec<Entry> = serde_path_to_error::deserialize(&mut deserializer)
        .map_err(|e| format!("{file}: instance types: {}: {}", e.path(), e.inner()))?;
    deserializer
        .end()
        .map_err(|e| format!("{file}: instance types: after the list: {e}"))?;
    let mut names = BTreeSet::new();
    let mut types = Vec::with_capacity(entries.len());
    for (at, entry) in entries.into_iter().enumerate() {
        if !names.insert(entry.name.clone()) {
            return Err(format!(
                "{file}: instance types: [{at}].name: duplicate name \"{}\"",
                entry.name
            ));
        }
        types.push(Arc::new(
            convert(&entry).map_err(|e| format!("{file}: instance types: [{at}].{e}"))?,
        ));
    }
    if types.is_empty() {
        return Err(format!("{file}: instance types: the list is empty"));
    }
    Ok(types.into())
}

fn convert(entry: &Entry) -> Result<InstanceType, String> {
    let mut capacity = resources("resources", &entry.resources)?;
    if capacity.find(&ResourceName::Pods).is_none() {
        capacity.set(ResourceName::Pods, DEFAULT_PODS);
    }
    let mut offerings = Vec::with_capacity(entry.offerings.len());
    for (at, offering) in entry.offerings.iter().enumerate() {
        offerings.push(convert_offering(offering).map_err(|e| format!("offerings[{at}].{e}"))?);
    }
    offerings.sort_by(|a, b| (&a.zone, a.capacity_type).cmp(&(&b.zone, b.capacity_type)));
    Ok(InstanceType {
        requirements: requirements(entry, &capacity, &offerings),
        name: entry.name.as_str().into(),
        overhead: resources("overhead", &entry.overhead)?,
        capacity,
        offerings,
    })
}

fn resources(field: &str, map: &BTreeMap<String, Value>) -> Result<Resources, String> {
    map.iter()
        .map(|(key, value)| {
            let text = value
                .as_str()
                .map_or_else(|| value.to_string(), str::to_owned);
            let quantity =
                Quantity::parse(&text).map_err(|e| format!("{field}.{key}: \"{text}\": {e}"))?;
            if quantity.is_negative() {
                return Err(format!("{field}.{key}: \"{text}\": must not be negative"));
            }
            let name = ResourceName::from(key.as_str());
            let amount = name.amount(quantity);
            Ok((name, amount))
        })
        .collect()
}

fn convert_offering(offering: &EntryOffering) -> Result<Offering, String> {
    let capacity_type = CapacityType::parse(&offering.capacity_type).ok_or_else(|| {
        format!(
            "capacityType: \"{}\" is none of on-demand, spot, reserved",
            offering.capacity_type
        )
    })?;
    let price = NanoDollarsPerHour::from_dollars(offering.price)
        .ok_or_else(|| format!("price: {} is not a price", offering.price))?;
    let mut converted = Offering::new(offering.zone.as_str().into(), capacity_type, price);
    converted.available = offering.available;
    Ok(converted)
}

/// The labels of the KWOK provider, and the AWS ones that follow from a `FAMILY.SIZE` name. Every
/// other well-known label does not exist on such a node.
fn requirements(entry: &Entry, capacity: &Resources, offerings: &[Offering]) -> Requirements {
    let mut values: BTreeMap<&str, Vec<Name>> = BTreeMap::new();
    values.insert(labels::INSTANCE_TYPE, vec![entry.name.as_str().into()]);
    values.insert(labels::ARCH, vec![entry.architecture.as_str().into()]);
    values.insert(
        labels::OS,
        entry
            .operating_systems
            .iter()
            .map(|os| os.as_str().into())
            .collect(),
    );
    values.insert(
        labels::ZONE,
        offerings.iter().map(|o| o.zone.clone()).collect(),
    );
    values.insert(
        labels::CAPACITY_TYPE,
        offerings
            .iter()
            .map(|o| o.capacity_type.as_str().into())
            .collect(),
    );
    if let Some((family, size)) = entry.name.split_once('.') {
        let category: String = family
            .chars()
            .take_while(char::is_ascii_alphabetic)
            .collect();
        let generation: String = family
            .chars()
            .skip(category.len())
            .take_while(char::is_ascii_digit)
            .collect();
        let cores = capacity.get(&ResourceName::Cpu) / 1000;
        let mebibytes = capacity.get(&ResourceName::Memory) >> 20;
        values.insert("karpenter.k8s.aws/instance-family", vec![family.into()]);
        values.insert("karpenter.k8s.aws/instance-size", vec![size.into()]);
        values.insert("karpenter.k8s.aws/instance-category", vec![category.into()]);
        values.insert(
            "karpenter.k8s.aws/instance-generation",
            vec![generation.into()],
        );
        values.insert(
            "karpenter.k8s.aws/instance-cpu",
            vec![cores.to_string().into()],
        );
        values.insert(
            "karpenter.k8s.aws/instance-memory",
            vec![mebibytes.to_string().into()],
        );
    }
    let owner_keys = [labels::NODE_POOL, "karpenter.k8s.aws/ec2nodeclass"];
    labels::WELL_KNOWN
        .iter()
        .filter(|key| !owner_keys.contains(key))
        .map(|key| match values.remove(key) {
            Some(values) => Requirement::new(&(*key).into(), Operator::In, values),
            None => Requirement::new(&(*key).into(), Operator::DoesNotExist, []),
        })
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    const ONE: &str = r#"[{"name":"c5.large","architecture":"amd64","operatingSystems":["linux"],
        "resources":{"cpu":"2","memory":"4Gi"},"overhead":{"cpu":"100m"},
        "offerings":[{"capacityType":"spot","zone":"z-a","price":0.04,"available":false},
                     {"capacityType":"on-demand","zone":"z-a","price":0.085}]}]"#;

    #[test]
    fn a_type_gets_its_capacity_offerings_and_the_labels_of_its_name() {
        let types = parse("f", ONE.as_bytes()).unwrap();
        let allocatable = types[0].allocatable();
        assert_eq!(
            allocatable,
            Resources::of(1900, 4 << 30).with(ResourceName::Pods, 110)
        );
        let generation = types[0]
            .requirements
            .get("karpenter.k8s.aws/instance-generation")
            .unwrap();
        assert!(generation.has("5"));
        assert_eq!(
            types[0]
                .cheapest(&Requirements::new())
                .unwrap()
                .capacity_type,
            CapacityType::OnDemand
        );
    }

    #[test]
    fn a_bad_field_is_named_with_its_path() {
        for (from, to, expected) in [
            (
                "\"4Gi\"",
                "\"4Zi\"",
                "f: instance types: [0].resources.memory: \"4Zi\": quantity has an unknown suffix",
            ),
            (
                "\"4Gi\"",
                "\"-4Gi\"",
                "f: instance types: [0].resources.memory: \"-4Gi\": must not be negative",
            ),
            (
                "spot",
                "Spot",
                "f: instance types: [0].offerings[0].capacityType: \"Spot\" is none of",
            ),
            (
                "0.04",
                "-1",
                "f: instance types: [0].offerings[0].price: -1 is not a price",
            ),
            (
                "0.04",
                "\"x\"",
                "f: instance types: [0].offerings[0].price: invalid type",
            ),
            (
                "architecture",
                "arch",
                "f: instance types: [0].arch: unknown field",
            ),
        ] {
            let error = parse("f", ONE.replacen(from, to, 1).as_bytes()).unwrap_err();
            assert!(error.starts_with(expected), "{error}");
        }
        assert!(parse("f", b"[]").unwrap_err().contains("empty"));
    }
}
