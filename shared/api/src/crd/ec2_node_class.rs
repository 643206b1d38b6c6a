//! Rules of EC2NodeClass, with the messages that users know.
//!
//! Source: AWS specification 2 and 3.

use super::refine::Schema;
use super::shared::{self, Conditions};
use crate::ec2_node_class::AmiFamily;

/// Sizes from 1 to 59000Gi, 64000G, 58Ti or 64T. Parity: the empty alternatives and the gap
/// between the two-digit alternatives for Ti are part of the published schema.
const VOLUME_SIZE: &str = concat!(
    r"^((?:[1-9][0-9]{0,3}|[1-4][0-9]{4}|[5][0-8][0-9]{3}|59000)Gi",
    r"|(?:[1-9][0-9]{0,3}|[1-5][0-9]{4}|[6][0-3][0-9]{3}|64000)G",
    r"|([1-9]||[1-5][0-7]|58)Ti|([1-9]||[1-5][0-9]|6[0-3]|64)T)$"
);

/// Adds the rules.
pub(super) fn refine(schema: &mut Schema) {
    spec(schema);
    subnets(schema);
    security_groups(schema);
    capacity_reservations(schema);
    placement_group(schema);
    amis(schema);
    aliases(schema);
    tags(schema);
    block_devices(schema);
    network_interfaces(schema);
    options(schema);
    status(schema);
}

fn spec(schema: &mut Schema) {
    schema.at("spec").rule(
        "must specify exactly one of ['role', 'instanceProfile']",
        "has(self.role) != has(self.instanceProfile)",
    );
    schema.at("spec").rule(
        "must specify amiFamily if amiSelectorTerms does not contain an alias",
        "has(self.amiFamily) || self.amiSelectorTerms.exists(x, has(x.alias))",
    );
    for family in AmiFamily::ALL {
        let (name, Some(alias)) = (family.as_str(), family.alias()) else {
            continue;
        };
        let article = if name.starts_with('A') { "an" } else { "a" };
        schema.at("spec").rule(
            &format!(
                "if set, amiFamily must be '{name}' or 'Custom' when using {article} {name} alias"
            ),
            &format!(
                "!has(self.amiFamily) || self.amiFamily in ['{name}', 'Custom'] \
                 || !self.amiSelectorTerms.exists(x, has(x.alias) && x.alias.startsWith('{alias}@'))"
            ),
        );
    }
    schema
        .at("spec.role")
        .rule("role cannot be empty", "self != ''");
    schema
        .at("spec.instanceProfile")
        .rule("instanceProfile cannot be empty", "self != ''");
    schema.at("spec.ipPrefixCount").minimum(0);
    schema.at("spec.kubelet").open();
}

/// Rules of the map of tags of a selector's term.
fn selector_tags(schema: &mut Schema, path: &str) {
    schema.at(path).max_properties(20).rule(
        "empty tag keys or values aren't supported",
        "self.all(k, k != '' && self[k] != '')",
    );
}

fn subnets(schema: &mut Schema) {
    let path = "spec.subnetSelectorTerms";
    schema
        .at(path)
        .max_items(30)
        .rule("subnetSelectorTerms cannot be empty", "self.size() > 0")
        .rule(
            "expected at least one, got none, ['tags', 'id']",
            "self.all(x, has(x.tags) || has(x.id))",
        )
        // Parity: one good term makes up for any number of bad ones, here and in the next lists.
        .rule(
            "'id' is mutually exclusive, cannot be set with a combination of other fields in a subnet selector term",
            "!self.all(x, has(x.id) && has(x.tags))",
        );
    selector_tags(schema, &format!("{path}[].tags"));
    schema
        .at(&format!("{path}[].id"))
        .pattern("subnet-[0-9a-z]+");
}

fn security_groups(schema: &mut Schema) {
    let path = "spec.securityGroupSelectorTerms";
    schema
        .at(path)
        .max_items(30)
        .rule("securityGroupSelectorTerms cannot be empty", "self.size() > 0")
        .rule(
            "expected at least one, got none, ['tags', 'id', 'name']",
            "self.all(x, has(x.tags) || has(x.id) || has(x.name))",
        )
        .rule(
            "'id' is mutually exclusive, cannot be set with a combination of other fields in a security group selector term",
            "!self.all(x, has(x.id) && (has(x.tags) || has(x.name)))",
        )
        .rule(
            "'name' is mutually exclusive, cannot be set with a combination of other fields in a security group selector term",
            "!self.all(x, has(x.name) && (has(x.tags) || has(x.id)))",
        );
    selector_tags(schema, &format!("{path}[].tags"));
    schema.at(&format!("{path}[].id")).pattern("sg-[0-9a-z]+");
}

fn capacity_reservations(schema: &mut Schema) {
    let path = "spec.capacityReservationSelectorTerms";
    schema
        .at(path)
        .max_items(30)
        .rule(
            "expected at least one, got none, ['tags', 'id', 'instanceMatchCriteria']",
            "self.all(x, has(x.tags) || has(x.id) || has(x.instanceMatchCriteria))",
        )
        .rule(
            "'id' is mutually exclusive, cannot be set along with other fields in a capacity reservation selector term",
            "self.size() == 0 || !self.all(x, has(x.id) \
             && (has(x.tags) || has(x.ownerID) || has(x.instanceMatchCriteria)))",
        );
    selector_tags(schema, &format!("{path}[].tags"));
    schema.at(&format!("{path}[].id")).pattern("^cr-[0-9a-z]+$");
    schema
        .at(&format!("{path}[].ownerID"))
        .pattern("^[0-9]{12}$");
    schema
        .at(&format!("{path}[].instanceMatchCriteria"))
        .one_of(&["open", "targeted"]);
}

fn placement_group(schema: &mut Schema) {
    let path = "spec.placementGroupSelector";
    schema
        .at(path)
        .rule(
            "expected at least one, got none, ['name', 'id']",
            "has(self.name) || has(self.id)",
        )
        .rule(
            "'name' and 'id' are mutually exclusive",
            "!has(self.name) || !has(self.id)",
        );
    schema.at(&format!("{path}.name")).min_length(1);
    schema.at(&format!("{path}.id")).pattern("^pg-[0-9a-z]+$");
}

fn amis(schema: &mut Schema) {
    let path = "spec.amiSelectorTerms";
    schema
        .at(path)
        .min_items(1)
        .max_items(30)
        .rule(
            "expected at least one, got none, ['tags', 'id', 'name', 'alias', 'ssmParameter']",
            "self.all(x, has(x.tags) || has(x.id) || has(x.name) || has(x.alias) || has(x.ssmParameter))",
        )
        // Parity: ssmParameter excludes nothing.
        .rule(
            "'id' is mutually exclusive, cannot be set with a combination of other fields in amiSelectorTerms",
            "!self.exists(x, has(x.id) && (has(x.alias) || has(x.tags) || has(x.name) || has(x.owner)))",
        )
        .rule(
            "'alias' is mutually exclusive, cannot be set with a combination of other fields in amiSelectorTerms",
            "!self.exists(x, has(x.alias) && (has(x.id) || has(x.tags) || has(x.name) || has(x.owner)))",
        )
        .rule(
            "'alias' is mutually exclusive, cannot be set with a combination of other amiSelectorTerms",
            "self.size() == 1 || !self.exists(x, has(x.alias))",
        );
    selector_tags(schema, &format!("{path}[].tags"));
    schema.at(&format!("{path}[].id")).pattern("ami-[0-9a-z]+");
}

fn aliases(schema: &mut Schema) {
    let families: Vec<_> = AmiFamily::ALL
        .into_iter()
        .filter_map(AmiFamily::alias)
        .map(|alias| format!("'{alias}'"))
        .collect();
    let families = families.join(", ");
    schema
        .at("spec.amiSelectorTerms[].alias")
        .max_length(30)
        .rule(
            "'alias' is improperly formatted, must match the format 'family@version'",
            "self.matches('^[a-zA-Z0-9]+@.+$')",
        )
        .rule(
            &format!("family is not supported, must be one of the following: {families}"),
            &format!("self.find('^[^@]+') in [{families}]"),
        )
        .rule(
            "windows families may only specify version 'latest'",
            "!self.startsWith('windows') || self.endsWith('@latest')",
        );
}

fn tags(schema: &mut Schema) {
    schema
        .at("spec.tags")
        .rule("empty tag keys aren't supported", "!('' in self)");
    for key in [
        "eks:eks-cluster-name",
        "kubernetes.io/cluster/",
        "karpenter.sh/nodepool",
        "karpenter.sh/nodeclaim",
        "karpenter.k8s.aws/ec2nodeclass",
    ] {
        let message = format!("tag contains a restricted tag matching {key}");
        let rule = match key.strip_suffix('/') {
            Some(prefix) => format!("self.all(k, !k.startsWith('{prefix}'))"),
            None => format!("!('{key}' in self)"),
        };
        schema.at("spec.tags").rule(&message, &rule);
    }
}

fn block_devices(schema: &mut Schema) {
    let path = "spec.blockDeviceMappings";
    schema.at(path).max_items(50).rule(
        "must have only one blockDeviceMappings with rootVolume",
        "self.filter(x, has(x.rootVolume) && x.rootVolume).size() <= 1",
    );
    schema
        .at(&format!("{path}[].ebs"))
        .rule(
            "snapshotID or volumeSize must be defined",
            "has(self.snapshotID) || has(self.volumeSize)",
        )
        .rule(
            "snapshotID must be set when volumeInitializationRate is set",
            "!has(self.volumeInitializationRate) || has(self.snapshotID) && self.snapshotID != ''",
        );
    schema
        .at(&format!("{path}[].ebs.volumeInitializationRate"))
        .range(100, 300);
    schema
        .at(&format!("{path}[].ebs.volumeSize"))
        .pattern(VOLUME_SIZE);
    let types = &["standard", "io1", "io2", "gp2", "sc1", "st1", "gp3"];
    schema.at(&format!("{path}[].ebs.volumeType")).one_of(types);
}

fn network_interfaces(schema: &mut Schema) {
    let path = "spec.networkInterfaces";
    schema
        .at(path)
        .max_items(150)
        .rule(
            "networkInterfaces must include a primary interface with interfaceType='interface'",
            "self.size() == 0 || self.exists(x, x.networkCardIndex == 0 && x.deviceIndex == 0 \
             && x.interfaceType == 'interface')",
        )
        // Each interface may find only itself among those that share its place or its adapter.
        .rule(
            "networkInterfaces must not have duplicate networkCardIndex and deviceIndex pairs, and can have at most one efa device per network card",
            "self.all(x, self.exists_one(y, x.networkCardIndex == y.networkCardIndex \
             && (x.deviceIndex == y.deviceIndex \
             || x.interfaceType == 'efa-only' && y.interfaceType == 'efa-only')))",
        );
    schema.at(&format!("{path}[].networkCardIndex")).minimum(0);
    schema.at(&format!("{path}[].deviceIndex")).minimum(0);
}

fn options(schema: &mut Schema) {
    let metadata = "spec.metadataOptions";
    for field in ["httpEndpoint", "httpProtocolIPv6"] {
        schema
            .at(&format!("{metadata}.{field}"))
            .one_of(&["enabled", "disabled"]);
    }
    schema
        .at(&format!("{metadata}.httpPutResponseHopLimit"))
        .range(1, 64);
    schema
        .at(&format!("{metadata}.httpTokens"))
        .one_of(&["required", "optional"]);

    let tracking = "spec.connectionTracking";
    schema.at(tracking).rule(
        "at least one of tcpEstablishedTimeout, udpStreamTimeout, or udpTimeout must be set",
        "has(self.tcpEstablishedTimeout) || has(self.udpStreamTimeout) || has(self.udpTimeout)",
    );
    schema
        .at(&format!("{tracking}.tcpEstablishedTimeout"))
        .range(60, 432_000);
    schema
        .at(&format!("{tracking}.udpStreamTimeout"))
        .range(60, 180);
    schema.at(&format!("{tracking}.udpTimeout")).range(30, 60);

    schema
        .at("spec.cpuOptions.nestedVirtualization")
        .one_of(&["enabled", "disabled"]);
}

fn status(schema: &mut Schema) {
    let reservations = "status.capacityReservations[]";
    schema
        .at(&format!("{reservations}.endTime"))
        .describe("When the reservation ends; absent if it does not.");
    schema
        .at(&format!("{reservations}.id"))
        .pattern("^cr-[0-9a-z]+$");
    schema
        .at(&format!("{reservations}.instanceMatchCriteria"))
        .one_of(&["open", "targeted"]);
    schema
        .at(&format!("{reservations}.ownerID"))
        .pattern("^[0-9]{12}$");
    schema
        .at("status.amis[].requirements[].values")
        .atomic_list();
    shared::conditions(schema, Conditions::Complete);
}
