//! What a launch asks for: which types, which capacity type, which offerings.
//!
//! Source: AWS specification 20.2 to 20.4.

use std::{
    collections::{BTreeMap, BTreeSet, HashMap},
    sync::Arc,
};

use millwright_api::ec2_node_class::Ami;
use millwright_model::{
    CapacityType, InstanceType, Name, NanoDollarsPerHour, Offering, Requirements, ResourceName,
    Resources, instance_type::InstanceTypes, labels,
};

use crate::images::image_for;

/// Types that one request names at most.
pub const TYPES_MAX: usize = 60;
/// Overrides that one request may have (EC2's limit).
pub const OVERRIDES_MAX: usize = 300;
/// The resource of Elastic Fabric Adapters.
const EFA: &str = "vpc.amazonaws.com/efa";
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
    let choices = cheapest_that_are_flexible_enough(choices, requirements)?;
    (!choices.is_empty()).then_some(Selection {
        capacity_type,
        choices,
    })
}

/// The cheapest [`TYPES_MAX`] choices that together have as many values of each key as `minValues`
/// demands; `None` when even all of them have not. Differs: where the cheapest alone lack values,
/// dearer types that bring them are taken in, instead of giving the launch up.
fn cheapest_that_are_flexible_enough(
    mut choices: Vec<Choice>,
    requirements: &Requirements,
) -> Option<Vec<Choice>> {
    let mut needed: Vec<usize> = Vec::new();
    for requirement in requirements.iter() {
        let Some(floor) = requirement.min_values() else {
            continue;
        };
        let mut seen: BTreeSet<&Name> = BTreeSet::new();
        for (at, choice) in choices.iter().enumerate() {
            if seen.len() >= usize::try_from(floor).unwrap_or(usize::MAX) {
                break;
            }
            let values = choice.instance_type.requirements.get(requirement.key());
            let before = seen.len();
            seen.extend(
                values
                    .iter()
                    .flat_map(|r| r.values())
                    .filter(|v| requirement.has(v)),
            );
            if seen.len() > before {
                needed.push(at);
            }
        }
        if seen.len() < usize::try_from(floor).unwrap_or(usize::MAX) {
            return None;
        }
    }
    needed.sort_unstable();
    needed.dedup();
    if needed.len() > TYPES_MAX {
        return None;
    }
    let mut room = TYPES_MAX - needed.len();
    let mut at = 0;
    choices.retain(|_| {
        let wanted = needed.binary_search(&at).is_ok();
        at += 1;
        if !wanted && room > 0 {
            room -= 1;
            return true;
        }
        wanted
    });
    Some(choices)
}

/// One line of a launch request.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Override {
    /// Instance type.
    pub instance_type: Name,
    /// Zone.
    pub zone: Name,
    /// Subnet in that zone.
    pub subnet_id: String,
    /// Price, by which prioritised strategies order: the lower, the earlier.
    pub price: NanoDollarsPerHour,
}

/// Overrides that can share a launch template.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TemplateOverrides {
    /// Image of the template.
    pub image_id: String,
    /// Pods per node, which user data states.
    pub pods: i64,
    /// Elastic Fabric Adapters of the types; 0 unless the claim asks for them.
    pub efa: i64,
    /// Cheapest first.
    pub overrides: Vec<Override>,
}

/// The overrides of a selection: its [`OVERRIDES_MAX`] cheapest offerings that have an image and a
/// subnet, by launch template. Types without an image are left out. Templates are ordered by
/// image and pods, so that equal selections give equal requests.
#[must_use]
pub fn overrides(
    selection: &Selection,
    images: &[Ami],
    subnet_by_zone: &HashMap<String, String>,
    requests: &Resources,
) -> Vec<TemplateOverrides> {
    let adapter = ResourceName::from(EFA);
    let wants_adapters = requests.get(&adapter) > 0;
    let mut all: Vec<(Override, (&str, i64, i64))> = Vec::new();
    for choice in &selection.choices {
        let Some(image) = image_for(images, &choice.instance_type) else {
            continue;
        };
        let capacity = &choice.instance_type.capacity;
        let pods = capacity.get(&ResourceName::Pods);
        let efa = if wants_adapters {
            capacity.get(&adapter)
        } else {
            0
        };
        for offering in choice.offerings() {
            if let Some(subnet_id) = subnet_by_zone.get(&*offering.zone) {
                let line = Override {
                    instance_type: choice.instance_type.name.clone(),
                    zone: offering.zone.clone(),
                    subnet_id: subnet_id.clone(),
                    price: offering.price,
                };
                all.push((line, (&image.id, pods, efa)));
            }
        }
    }
    all.sort_by(|(a, _), (b, _)| {
        (a.price, &a.instance_type, &a.zone).cmp(&(b.price, &b.instance_type, &b.zone))
    });
    all.truncate(OVERRIDES_MAX);
    let mut by_template: BTreeMap<(&str, i64, i64), Vec<Override>> = BTreeMap::new();
    for (line, template) in all {
        by_template.entry(template).or_default().push(line);
    }
    by_template
        .into_iter()
        .map(|((image_id, pods, efa), overrides)| TemplateOverrides {
            image_id: image_id.to_owned(),
            pods,
            efa,
            overrides,
        })
        .collect()
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

    fn ami(id: &str) -> Ami {
        Ami {
            id: id.to_owned(),
            ..Ami::default()
        }
    }

    fn subnets(zones: &[&str]) -> HashMap<String, String> {
        zones
            .iter()
            .map(|zone| ((*zone).to_owned(), format!("subnet-{zone}")))
            .collect()
    }

    proptest::proptest! {
        /// Whatever is for sale: only offerings that a zone's subnet can take, never more than EC2
        /// allows, never a dear one in place of a cheaper one, in order of price.
        #[test]
        fn overrides_are_the_cheapest_that_can_be_launched(
            prices in proptest::collection::vec((1_u64..1_000, 0_u8..8), 1..90),
        ) {
            let types: InstanceTypes = prices
                .iter()
                .enumerate()
                .map(|(n, (price, _))| {
                    let offerings: Vec<_> = ["a", "b", "c", "d", "e", "f", "g"]
                        .iter()
                        .zip(0..)
                        .map(|(zone, more)| (*zone, CapacityType::OnDemand, price + more, true))
                        .collect();
                    let mut one = (*kind(&format!("t{n:02}.large"), 4_000, &offerings)).clone();
                    one.capacity.set(ResourceName::Pods, i64::from(prices[n].1));
                    Arc::new(one)
                })
                .collect();
            let selection = select(&types, &Requirements::new(), &Resources::of(1, 0)).unwrap();
            proptest::prop_assert!(selection.choices.len() <= TYPES_MAX);
            let templates =
                overrides(&selection, &[ami("ami-1")], &subnets(&["a", "b", "c", "d", "e", "f"]), &Resources::new());
            let chosen: Vec<&Override> = templates.iter().flat_map(|t| &t.overrides).collect();
            proptest::prop_assert!(chosen.len() <= OVERRIDES_MAX);
            proptest::prop_assert!(chosen.iter().all(|line| &*line.zone != "g"));
            let possible = selection.choices.len() * 6;
            proptest::prop_assert_eq!(chosen.len(), possible.min(OVERRIDES_MAX));
            let dearest = chosen.iter().map(|line| line.price).max();
            let left_out = selection
                .choices
                .iter()
                .flat_map(|choice| choice.offerings().map(move |o| (choice, o)))
                .filter(|(_, o)| &*o.zone != "g")
                .filter(|(choice, o)| {
                    let name = &choice.instance_type.name;
                    !chosen.iter().any(|l| l.instance_type == *name && l.zone == o.zone)
                })
                .map(|(_, o)| o.price)
                .min();
            proptest::prop_assert!(left_out.is_none_or(|price| Some(price) >= dearest));
            for template in &templates {
                proptest::prop_assert!(template.overrides.is_sorted_by_key(|line| line.price));
            }
        }
    }

    #[test]
    fn types_share_a_template_by_image_and_pods_and_those_without_an_image_are_left_out() {
        let with_pods = |name: &str, pods| {
            let mut one = (*kind(name, 4_000, &[("a", CapacityType::OnDemand, 5, true)])).clone();
            one.capacity.set(ResourceName::Pods, pods);
            Arc::new(one)
        };
        let types: InstanceTypes = [
            with_pods("x.large", 29),
            with_pods("y.large", 29),
            with_pods("z.large", 58),
        ]
        .into();
        let selection = select(&types, &Requirements::new(), &Resources::of(1, 0)).unwrap();
        let found: Vec<_> = overrides(
            &selection,
            &[ami("ami-1")],
            &subnets(&["a"]),
            &Resources::new(),
        )
        .into_iter()
        .map(|template| (template.image_id, template.pods, template.overrides.len()))
        .collect();
        assert_eq!(
            found,
            [("ami-1".to_owned(), 29, 2), ("ami-1".to_owned(), 58, 1)]
        );
        let adapters = Resources::new().with(EFA.into(), 1);
        let apart = overrides(&selection, &[ami("ami-1")], &subnets(&["a"]), &adapters);
        assert!(
            apart.iter().all(|template| template.efa == 0),
            "no type has one"
        );
        assert!(overrides(&selection, &[], &subnets(&["a"]), &Resources::new()).is_empty());
        assert!(
            overrides(
                &selection,
                &[ami("ami-1")],
                &subnets(&["b"]),
                &Resources::new()
            )
            .is_empty()
        );
    }

    #[test]
    fn types_that_min_values_need_are_kept_although_cheaper_ones_fill_the_request() {
        let family = "karpenter.k8s.aws/instance-family";
        let types: InstanceTypes = (0..70)
            .map(|n| {
                let price = [("a", CapacityType::OnDemand, 100 + n, true)];
                let mut one = (*kind(&format!("t{n:02}.large"), 4_000, &price)).clone();
                // The 66th is the first of the second family, the last of the third.
                let name = if n < 65 {
                    "x"
                } else if n < 69 {
                    "y"
                } else {
                    "z"
                };
                one.requirements = [Requirement::label(&family.into(), &name.into())]
                    .into_iter()
                    .collect();
                Arc::new(one)
            })
            .collect();
        let at_least = |floor| -> Requirements {
            let some = Requirement::new(&family.into(), Operator::Exists, []);
            [some.with_min_values(Some(floor))].into_iter().collect()
        };
        let chosen = |floor| {
            let selection = select(&types, &at_least(floor), &Resources::of(1, 0))?;
            assert!(selection.choices.is_sorted_by_key(|choice| choice.price));
            Some((
                selection.choices.len(),
                names(&selection).last().map(|name| (*name).to_owned()),
            ))
        };
        assert_eq!(chosen(1), Some((60, Some("t59.large".to_owned()))));
        assert_eq!(chosen(2), Some((60, Some("t65.large".to_owned()))));
        assert_eq!(chosen(3), Some((60, Some("t69.large".to_owned()))));
        assert_eq!(chosen(4), None);
    }
}
