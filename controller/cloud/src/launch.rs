//! What a launch asks for: which types, which capacity type, which offerings.
//!
//! Source: AWS specification 20.2 to 20.4.

use std::sync::Arc;

use millwright_model::{
    CapacityType, InstanceType, NanoDollarsPerHour, Offering, Requirements, ResourceName,
    Resources, instance_type::InstanceTypes, labels,
};

/// Types that one request names at most.
pub const TYPES_MAX: usize = 60;
/// Overrides that one request may have (EC2's limit).
pub const OVERRIDES_MAX: usize = 300;
/// Resources of special hardware, which plain pods should not occupy.
const EXOTIC: [&str; 5] = [
    "nvidia.com/gpu",
    "amd.com/gpu",
    "habana.ai/gaudi",
    "aws.amazon.com/neuron",
    "aws.amazon.com/neuroncore",
];

/// A type with the offerings that a launch may use.
#[derive(Clone, Debug)]
pub struct Choice {
    /// The type.
    pub instance_type: Arc<InstanceType>,
    /// Indices of its offerings, all of the chosen capacity type.
    pub offerings: Vec<usize>,
    /// The cheapest of them.
    pub price: NanoDollarsPerHour,
}

impl Choice {
    /// The offerings themselves.
    pub fn offerings(&self) -> impl Iterator<Item = &Offering> + '_ {
        self.offerings
            .iter()
            .filter_map(|at| self.instance_type.offerings.get(*at))
    }
}

/// What to ask for.
#[derive(Clone, Debug)]
pub struct Selection {
    /// How it is bought.
    pub capacity_type: CapacityType,
    /// Types, cheapest first; never empty.
    pub choices: Vec<Choice>,
}

/// Chooses types and offerings for requirements and requests; `None` when everything that fits is
/// unavailable.
#[must_use]
pub fn select(
    types: &InstanceTypes,
    requirements: &Requirements,
    requests: &Resources,
) -> Option<Selection> {
    let usable = |offering: &Offering| {
        offering.available
            && offering.capacity_type != CapacityType::Reserved
            && requirements
                .compatible(&offering.requirements, labels::is_well_known)
                .is_ok()
    };
    let mut fitting: Vec<&Arc<InstanceType>> = types
        .iter()
        .filter(|t| t.requirements.intersects(requirements).is_ok())
        .filter(|t| requests.fits(&t.allocatable()) && t.offerings.iter().any(usable))
        .collect();
    if !requirements.has_min_values() {
        let plain: Vec<&Arc<InstanceType>> =
            fitting.iter().copied().filter(|t| !is_exotic(t)).collect();
        if !plain.is_empty() {
            fitting = plain;
        }
    }
    let spot = fitting.iter().any(|t| {
        t.offerings
            .iter()
            .any(|o| o.capacity_type == CapacityType::Spot && usable(o))
    });
    let capacity_type = if spot {
        CapacityType::Spot
    } else {
        CapacityType::OnDemand
    };
    // Spot that costs more than on-demand is no bargain.
    let ceiling = fitting
        .iter()
        .flat_map(|t| &t.offerings)
        .filter(|o| o.capacity_type == CapacityType::OnDemand && usable(o))
        .map(|o| o.price)
        .min()
        .filter(|_| spot && !requirements.has_min_values())
        .unwrap_or(NanoDollarsPerHour::MAX);
    let mut choices: Vec<Choice> = fitting
        .into_iter()
        .filter_map(|instance_type| {
            let offerings: Vec<usize> = (0..instance_type.offerings.len())
                .filter(|at| {
                    instance_type.offerings.get(*at).is_some_and(|o| {
                        o.capacity_type == capacity_type && usable(o) && o.price <= ceiling
                    })
                })
                .collect();
            let price = offerings
                .iter()
                .filter_map(|at| instance_type.offerings.get(*at))
                .map(|o| o.price)
                .min()?;
            Some(Choice {
                instance_type: Arc::clone(instance_type),
                offerings,
                price,
            })
        })
        .collect();
    choices.sort_by(|a, b| {
        a.price
            .cmp(&b.price)
            .then_with(|| a.instance_type.name.cmp(&b.instance_type.name))
    });
    choices.truncate(TYPES_MAX);
    (!choices.is_empty()).then_some(Selection {
        capacity_type,
        choices,
    })
}

fn is_exotic(instance_type: &InstanceType) -> bool {
    let metal = instance_type
        .name
        .split_once('.')
        .is_some_and(|(_, size)| size.contains("metal"));
    metal
        || EXOTIC
            .iter()
            .any(|name| instance_type.capacity.get(&ResourceName::from(*name)) > 0)
}

#[cfg(test)]
mod tests {
    use super::*;
    use millwright_model::{Operator, Requirement};

    fn kind(
        name: &str,
        cpu: i64,
        offerings: &[(&str, CapacityType, u64, bool)],
    ) -> Arc<InstanceType> {
        Arc::new(InstanceType {
            name: name.into(),
            requirements: Requirements::new(),
            capacity: Resources::of(cpu, 8 << 30),
            overhead: Resources::new(),
            offerings: offerings
                .iter()
                .map(|(zone, capacity_type, price, available)| Offering {
                    available: *available,
                    ..Offering::new((*zone).into(), *capacity_type, NanoDollarsPerHour(*price))
                })
                .collect(),
        })
    }

    fn names(selection: &Selection) -> Vec<&str> {
        selection
            .choices
            .iter()
            .map(|choice| &*choice.instance_type.name)
            .collect()
    }

    #[test]
    fn spot_wins_when_it_is_allowed_and_dear_spot_is_dropped() {
        use CapacityType::{OnDemand, Spot};
        let types: InstanceTypes = vec![
            kind(
                "a.large",
                2000,
                &[("z", OnDemand, 100, true), ("z", Spot, 40, true)],
            ),
            kind(
                "b.large",
                2000,
                &[("z", OnDemand, 90, true), ("z", Spot, 95, true)],
            ),
            kind("c.large", 2000, &[("z", Spot, 10, false)]),
            kind("d.small", 500, &[("z", Spot, 1, true)]),
            kind("e.metal", 9000, &[("z", Spot, 2, true)]),
        ]
        .into();
        let selection = select(&types, &Requirements::new(), &Resources::of(1000, 0)).unwrap();
        assert_eq!(
            (selection.capacity_type, names(&selection)),
            (Spot, vec!["a.large"])
        );
        let only: Requirements = [Requirement::new(
            &labels::CAPACITY_TYPE.into(),
            Operator::In,
            ["on-demand".into()],
        )]
        .into_iter()
        .collect();
        let selection = select(&types, &only, &Resources::of(1000, 0)).unwrap();
        assert_eq!(
            (selection.capacity_type, names(&selection)),
            (OnDemand, vec!["b.large", "a.large"])
        );
        assert!(select(&types, &only, &Resources::of(99_000, 0)).is_none());
    }
}
