//! The columns of built-in types, after the name.

use jiff::Timestamp;
use serde_json::{Value, json};

use super::object::{at, int_at, is_deleting, list_at, str_at};
use super::selector::LabelSelector;
use super::table::created;

/// One column; priority 0 is always shown, 1 with `-o wide`.
pub(crate) struct Column {
    pub(crate) name: &'static str,
    pub(crate) kind: &'static str,
    pub(crate) priority: i64,
    pub(crate) cell: fn(&Value) -> Value,
}

const fn text(name: &'static str, cell: fn(&Value) -> Value) -> Column {
    Column {
        name,
        kind: "string",
        priority: 0,
        cell,
    }
}

const fn wide(name: &'static str, cell: fn(&Value) -> Value) -> Column {
    Column {
        name,
        kind: "string",
        priority: 1,
        cell,
    }
}

const fn number(name: &'static str, cell: fn(&Value) -> Value) -> Column {
    Column {
        name,
        kind: "integer",
        priority: 0,
        cell,
    }
}

const AGE: Column = text("Age", |value| json!(age(value)));
const CONTAINERS: Column = wide("Containers", |value| containers(value, "name"));
const IMAGES: Column = wide("Images", |value| containers(value, "image"));
const SELECTOR: Column = wide("Selector", |value| {
    let selector = at(value, &["spec", "selector"]);
    let parsed = selector.and_then(|selector| {
        if selector.get("matchLabels").is_some() {
            LabelSelector::from_object(selector)
        } else {
            LabelSelector::from_map(selector)
        }
    });
    json!(parsed.map_or_else(|| "<none>".to_owned(), |selector| selector.to_string()))
});

const PODS: &[Column] = &[
    text("Ready", |pod| {
        let statuses = list_at(pod, &["status", "containerStatuses"]);
        let is_ready = |status: &&Value| status.get("ready") == Some(&json!(true));
        let ready = statuses.iter().filter(is_ready).count();
        json!(format!(
            "{ready}/{}",
            list_at(pod, &["spec", "containers"]).len()
        ))
    }),
    text("Status", |pod| json!(pod_status(pod))),
    text("Restarts", |pod| {
        let statuses = list_at(pod, &["status", "containerStatuses"]);
        let restarts = statuses
            .iter()
            .filter_map(|status| int_at(status, &["restartCount"]));
        json!(restarts.sum::<i64>().to_string())
    }),
    AGE,
    wide("IP", |pod| or_none(str_at(pod, &["status", "podIP"]))),
    wide("Node", |pod| or_none(str_at(pod, &["spec", "nodeName"]))),
    wide("Nominated Node", |pod| {
        or_none(str_at(pod, &["status", "nominatedNodeName"]))
    }),
    wide("Readiness Gates", |_| json!("<none>")),
];

const NODES: &[Column] = &[
    text("Status", |node| json!(node_status(node))),
    text("Roles", |node| {
        let labels = at(node, &["metadata", "labels"]).and_then(Value::as_object);
        let roles: Vec<&str> = labels
            .into_iter()
            .flatten()
            .filter_map(|(key, _)| key.strip_prefix("node-role.kubernetes.io/"))
            .collect();
        or_none(&roles.join(","))
    }),
    AGE,
    text("Version", |node| {
        json!(str_at(node, &["status", "nodeInfo", "kubeletVersion"]))
    }),
    wide("Internal-IP", |node| address(node, "InternalIP")),
    wide("External-IP", |node| address(node, "ExternalIP")),
    wide("OS-Image", |node| {
        or_unknown(str_at(node, &["status", "nodeInfo", "osImage"]))
    }),
    wide("Kernel-Version", |node| {
        or_unknown(str_at(node, &["status", "nodeInfo", "kernelVersion"]))
    }),
    wide("Container-Runtime", |node| {
        or_unknown(str_at(
            node,
            &["status", "nodeInfo", "containerRuntimeVersion"],
        ))
    }),
];

const DEPLOYMENTS: &[Column] = &[
    text("Ready", |it| {
        json!(format!("{}/{}", count(it, "readyReplicas"), wanted(it)))
    }),
    number("Up-to-date", |it| json!(count(it, "updatedReplicas"))),
    number("Available", |it| json!(count(it, "availableReplicas"))),
    AGE,
    CONTAINERS,
    IMAGES,
    SELECTOR,
];

const REPLICA_SETS: &[Column] = &[
    number("Desired", |it| json!(wanted(it))),
    number("Current", |it| json!(count(it, "replicas"))),
    number("Ready", |it| json!(count(it, "readyReplicas"))),
    AGE,
    CONTAINERS,
    IMAGES,
    SELECTOR,
];

const DAEMON_SETS: &[Column] = &[
    number("Desired", |it| json!(count(it, "desiredNumberScheduled"))),
    number("Current", |it| json!(count(it, "currentNumberScheduled"))),
    number("Ready", |it| json!(count(it, "numberReady"))),
    number("Up-to-date", |it| {
        json!(count(it, "updatedNumberScheduled"))
    }),
    number("Available", |it| json!(count(it, "numberAvailable"))),
    text("Node Selector", |it| {
        let selector = at(it, &["spec", "template", "spec", "nodeSelector"]);
        let parsed = selector.and_then(LabelSelector::from_map);
        or_none(&parsed.map(|it| it.to_string()).unwrap_or_default())
    }),
    AGE,
    CONTAINERS,
    IMAGES,
    SELECTOR,
];

const STATEFUL_SETS: &[Column] = &[
    text("Ready", |it| {
        json!(format!("{}/{}", count(it, "readyReplicas"), wanted(it)))
    }),
    AGE,
    CONTAINERS,
    IMAGES,
];

const JOBS: &[Column] = &[
    text("Status", |job| {
        let holds = |kind: &str| {
            list_at(job, &["status", "conditions"])
                .iter()
                .any(|it| str_at(it, &["type"]) == kind && str_at(it, &["status"]) == "True")
        };
        let kinds = ["Complete", "Failed", "Suspended"];
        json!(
            kinds
                .into_iter()
                .find(|kind| holds(kind))
                .unwrap_or("Running")
        )
    }),
    text("Completions", |job| {
        let wanted = int_at(job, &["spec", "completions"]).unwrap_or(1);
        json!(format!("{}/{wanted}", count(job, "succeeded")))
    }),
    AGE,
    CONTAINERS,
    IMAGES,
    SELECTOR,
];

const NAMESPACES: &[Column] = &[
    text("Status", |it| json!(str_at(it, &["status", "phase"]))),
    AGE,
];

const EVENTS: &[Column] = &[
    text("Last Seen", |event| {
        let times = [
            &["series", "lastObservedTime"][..],
            &["lastTimestamp"],
            &["eventTime"],
            &["metadata", "creationTimestamp"],
        ];
        let seen = times
            .iter()
            .map(|path| str_at(event, path))
            .find(|text| !text.is_empty());
        json!(seen.map_or_else(|| "<unknown>".to_owned(), since))
    }),
    text("Type", |event| json!(str_at(event, &["type"]))),
    text("Reason", |event| json!(str_at(event, &["reason"]))),
    text("Object", |event| {
        let kind = str_at(event, &["involvedObject", "kind"]).to_lowercase();
        json!(format!(
            "{kind}/{}",
            str_at(event, &["involvedObject", "name"])
        ))
    }),
    text("Message", |event| json!(str_at(event, &["message"]).trim())),
    wide("Count", |event| {
        json!(int_at(event, &["count"]).unwrap_or(1).to_string())
    }),
];

const SERVICES: &[Column] = &[
    text("Type", |it| json!(str_at(it, &["spec", "type"]))),
    text("Cluster-IP", |it| {
        or_none(str_at(it, &["spec", "clusterIP"]))
    }),
    text("External-IP", |_| json!("<none>")),
    text("Port(s)", |it| {
        let port = |port: &Value| {
            let number = int_at(port, &["port"]).unwrap_or(0);
            format!("{number}/{}", str_at(port, &["protocol"]))
        };
        let ports: Vec<String> = list_at(it, &["spec", "ports"]).iter().map(port).collect();
        or_none(&ports.join(","))
    }),
    AGE,
    SELECTOR,
];

const BUDGETS: &[Column] = &[
    text("Min Available", |it| share(it, "minAvailable")),
    text("Max Unavailable", |it| share(it, "maxUnavailable")),
    number("Allowed Disruptions", |it| {
        json!(count(it, "disruptionsAllowed"))
    }),
    AGE,
];

const LEASES: &[Column] = &[
    text("Holder", |it| {
        json!(str_at(it, &["spec", "holderIdentity"]))
    }),
    AGE,
];

const CONFIG_MAPS: &[Column] = &[
    number("Data", |it| {
        json!(entries(it, "data") + entries(it, "binaryData"))
    }),
    AGE,
];

const SECRETS: &[Column] = &[
    text("Type", |it| json!(str_at(it, &["type"]))),
    number("Data", |it| json!(entries(it, "data"))),
    AGE,
];

const PRIORITY_CLASSES: &[Column] = &[
    number("Value", |it| json!(int_at(it, &["value"]).unwrap_or(0))),
    text("Global-Default", |it| {
        json!((it.get("globalDefault") == Some(&json!(true))).to_string())
    }),
    AGE,
];

const DEFINITIONS: &[Column] = &[text("Created At", |it| json!(created(it).unwrap_or("")))];

const OTHERS: &[Column] = &[AGE];

/// The columns of a resource.
pub(crate) fn of(plural: &str) -> &'static [Column] {
    match plural {
        "pods" => PODS,
        "nodes" => NODES,
        "deployments" => DEPLOYMENTS,
        "replicasets" | "replicationcontrollers" => REPLICA_SETS,
        "daemonsets" => DAEMON_SETS,
        "statefulsets" => STATEFUL_SETS,
        "jobs" => JOBS,
        "namespaces" => NAMESPACES,
        "events" => EVENTS,
        "services" => SERVICES,
        "poddisruptionbudgets" => BUDGETS,
        "leases" => LEASES,
        "configmaps" => CONFIG_MAPS,
        "secrets" => SECRETS,
        "priorityclasses" => PRIORITY_CLASSES,
        "customresourcedefinitions" => DEFINITIONS,
        _ => OTHERS,
    }
}

fn count(value: &Value, field: &str) -> i64 {
    int_at(value, &["status", field]).unwrap_or(0)
}

fn wanted(value: &Value) -> i64 {
    int_at(value, &["spec", "replicas"]).unwrap_or(0)
}

fn entries(value: &Value, field: &str) -> usize {
    value
        .get(field)
        .and_then(Value::as_object)
        .map_or(0, serde_json::Map::len)
}

fn share(value: &Value, field: &str) -> Value {
    match at(value, &["spec", field]) {
        Some(Value::String(text)) => json!(text),
        Some(other) => json!(other.to_string()),
        None => json!("N/A"),
    }
}

fn or_none(text: &str) -> Value {
    json!(if text.is_empty() { "<none>" } else { text })
}

fn or_unknown(text: &str) -> Value {
    json!(if text.is_empty() { "<unknown>" } else { text })
}

fn containers(value: &Value, field: &str) -> Value {
    let all = list_at(value, &["spec", "template", "spec", "containers"]);
    let found: Vec<&str> = all
        .iter()
        .map(|container| str_at(container, &[field]))
        .collect();
    json!(found.join(","))
}

fn address(node: &Value, kind: &str) -> Value {
    let all = list_at(node, &["status", "addresses"]);
    let found = all
        .iter()
        .find(|address| str_at(address, &["type"]) == kind);
    or_none(found.map_or("", |address| str_at(address, &["address"])))
}

fn pod_status(pod: &Value) -> String {
    if is_deleting(pod) {
        return "Terminating".to_owned();
    }
    let reason = str_at(pod, &["status", "reason"]);
    if !reason.is_empty() {
        return reason.to_owned();
    }
    let statuses = list_at(pod, &["status", "containerStatuses"]);
    let waiting = statuses
        .iter()
        .map(|status| str_at(status, &["state", "waiting", "reason"]))
        .find(|reason| !reason.is_empty());
    let gated = list_at(pod, &["status", "conditions"])
        .iter()
        .any(|condition| str_at(condition, &["reason"]) == "SchedulingGated");
    match (waiting, gated) {
        (Some(reason), _) => reason.to_owned(),
        (None, true) => "SchedulingGated".to_owned(),
        (None, false) => match str_at(pod, &["status", "phase"]) {
            "Succeeded" => "Completed".to_owned(),
            "Failed" => "Error".to_owned(),
            phase => phase.to_owned(),
        },
    }
}

fn node_status(node: &Value) -> String {
    let ready = list_at(node, &["status", "conditions"])
        .iter()
        .find(|condition| str_at(condition, &["type"]) == "Ready")
        .map(|condition| str_at(condition, &["status"]));
    let mut status = match ready {
        Some("True") => "Ready".to_owned(),
        Some(_) => "NotReady".to_owned(),
        None => "Unknown".to_owned(),
    };
    if at(node, &["spec", "unschedulable"]) == Some(&json!(true)) {
        status.push_str(",SchedulingDisabled");
    }
    status
}

/// How old an object is.
pub(crate) fn age(value: &Value) -> String {
    created(value).map_or_else(|| "<unknown>".to_owned(), since)
}

/// How long ago a time was, in the units that people read.
pub(crate) fn since(time: &str) -> String {
    let Ok(time) = time.parse::<Timestamp>() else {
        return "<unknown>".to_owned();
    };
    human(Timestamp::now().as_second() - time.as_second())
}

fn human(seconds: i64) -> String {
    let (minutes, hours) = (seconds / 60, seconds / 3_600);
    let (days, years) = (hours / 24, hours / 24 / 365);
    let two = |major: i64, unit: &str, minor: i64, below: &str| match minor {
        0 => format!("{major}{unit}"),
        minor => format!("{major}{unit}{minor}{below}"),
    };
    match () {
        () if seconds < 0 => "0s".to_owned(),
        () if seconds < 120 => format!("{seconds}s"),
        () if minutes < 10 => two(minutes, "m", seconds % 60, "s"),
        () if hours < 3 => format!("{minutes}m"),
        () if hours < 8 => two(hours, "h", minutes % 60, "m"),
        () if hours < 48 => format!("{hours}h"),
        () if days < 8 => two(days, "d", hours % 24, "h"),
        () if years < 2 => format!("{days}d"),
        () if years < 8 => two(years, "y", days % 365, "d"),
        () => format!("{years}y"),
    }
}

#[cfg(test)]
mod tests {
    use super::human;

    #[test]
    fn ages_are_shown_as_kubectl_users_know_them() {
        for (seconds, expected) in [
            (-1, "0s"),
            (0, "0s"),
            (119, "119s"),
            (120, "2m"),
            (150, "2m30s"),
            (3_600, "60m"),
            (3 * 3_600 + 60, "3h1m"),
            (47 * 3_600, "47h"),
            (49 * 3_600, "2d1h"),
            (30 * 86_400, "30d"),
        ] {
            assert_eq!(human(seconds), expected);
        }
    }
}
