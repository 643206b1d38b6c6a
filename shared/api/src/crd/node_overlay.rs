//! Rules of NodeOverlay. Source: provisioning specification 1.4.

use super::refine::Schema;
use super::shared::{self, Conditions, Keys};

/// An unsigned decimal number.
const PRICE: &str = r"^\d+(\.\d+)?$";
/// A signed amount; or a raise in percent; or a cut in percent, at most to nothing.
const PRICE_ADJUSTMENT: &str = r"^([+-]\d*\.?\d+|\+\d*\.?\d+%|-(\d{1,2}(\.\d+)?|100)%)$";

/// Adds the rules.
pub(super) fn refine(schema: &mut Schema) {
    schema.at("spec").rule(
        "cannot set both 'price' and 'priceAdjustment'",
        "!has(self.price) || !has(self.priceAdjustment)",
    );
    shared::requirements(schema, "spec.requirements", Keys::Overlay);
    schema.at("spec.price").pattern(PRICE);
    schema.at("spec.priceAdjustment").pattern(PRICE_ADJUSTMENT);
    // Asked one by one: walking a map without a bound would cost too much.
    schema.at("spec.capacity").rule(
        "capacity must not contain 'cpu', 'memory', 'ephemeral-storage' or 'pods'",
        "!('cpu' in self) && !('memory' in self) && !('ephemeral-storage' in self) \
         && !('pods' in self)",
    );
    schema.at("spec.weight").range(1, 10_000);
    shared::conditions(schema, Conditions::Complete);
}
