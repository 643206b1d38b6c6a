//! What nodes cost, and what their replacements may come to cost.
//!
//! Source: disruption specification 3.2, 3.10.1 and 3.10.3.

use millwright_model::{
    CapacityType, InstanceType, NanoDollarsPerHour, Offering, Requirements, labels,
};

/// The price of the offering in exactly this zone and of this capacity type, available or not:
/// the node exists, so it was available once. `None` where there is none.
pub(crate) fn of_node(
    instance_type: &InstanceType,
    zone: &str,
    capacity_type: CapacityType,
) -> Option<NanoDollarsPerHour> {
    instance_type
        .offerings
        .iter()
        .filter(|o| &*o.zone == zone && o.capacity_type == capacity_type)
        .map(|offering| offering.price)
        .min()
}

/// Available offerings that the requirements allow.
pub(crate) fn compatible<'t>(
    instance_type: &'t InstanceType,
    requirements: &Requirements,
) -> impl Iterator<Item = &'t Offering> {
    instance_type.offerings.iter().filter(move |offering| {
        offering.available
            && requirements
                .compatible(&offering.requirements, labels::is_well_known)
                .is_ok()
    })
}

/// The most that a launch of this type can cost: launches try reserved capacity, then spot, then
/// on-demand, and within the first of these that is offered they may get the dearest.
pub(crate) fn worst_launch(
    instance_type: &InstanceType,
    requirements: &Requirements,
) -> Option<NanoDollarsPerHour> {
    let mut worst: Option<(CapacityType, NanoDollarsPerHour)> = None;
    for offering in compatible(instance_type, requirements) {
        let this = (offering.capacity_type, offering.price);
        worst = match worst {
            Some(known) if known.0 < this.0 || (known.0 == this.0 && known.1 >= this.1) => worst,
            _ => Some(this),
        };
    }
    worst.map(|(_, price)| price)
}

#[cfg(test)]
mod tests {
    use millwright_model::{Operator, Requirement, Resources};

    use super::*;

    fn offering(zone: &str, capacity_type: CapacityType, price: u64) -> Offering {
        Offering::new(zone.into(), capacity_type, NanoDollarsPerHour(price))
    }

    fn kind(offerings: Vec<Offering>) -> InstanceType {
        InstanceType {
            name: "t".into(),
            requirements: Requirements::new(),
            capacity: Resources::new(),
            overhead: Resources::new(),
            offerings,
        }
    }

    #[test]
    fn a_launch_may_get_the_dearest_offering_of_the_capacity_type_it_tries_first() {
        use CapacityType::{OnDemand, Spot};
        let t = kind(vec![
            offering("a", OnDemand, 10),
            offering("a", Spot, 3),
            offering("b", Spot, 4),
        ]);
        let any = Requirements::new();
        assert_eq!(worst_launch(&t, &any), Some(NanoDollarsPerHour(4)));
        let on_demand = Requirement::label(&labels::CAPACITY_TYPE.into(), &"on-demand".into());
        let on_demand: Requirements = [on_demand].into_iter().collect();
        assert_eq!(worst_launch(&t, &on_demand), Some(NanoDollarsPerHour(10)));
        let zone = Requirement::new(&labels::ZONE.into(), Operator::In, ["c".into()]);
        let elsewhere: Requirements = [zone].into_iter().collect();
        assert_eq!(worst_launch(&t, &elsewhere), None);
    }

    #[test]
    fn a_node_costs_what_its_offering_does_even_when_that_is_sold_out() {
        let mut sold_out = offering("a", CapacityType::Spot, 3);
        sold_out.available = false;
        let t = kind(vec![sold_out]);
        let price = of_node(&t, "a", CapacityType::Spot);
        assert_eq!(price, Some(NanoDollarsPerHour(3)));
        assert_eq!(of_node(&t, "a", CapacityType::OnDemand), None);
    }
}
