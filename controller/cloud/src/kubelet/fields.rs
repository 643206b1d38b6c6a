//! The fields of `KubeletConfiguration`, `kubelet.config.k8s.io/v1beta1`, and their JSON types.
//!
//! Source: Kubernetes reference, "Kubelet Configuration (v1beta1)", version 1.36.

use serde_json::Value;

/// JSON type of a field. Nested objects are checked for being objects only.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Kind {
    Bool,
    Int,
    Text,
    /// Text or number of seconds is not accepted: durations are text in Go's notation.
    Duration,
    TextList,
    /// Text to text.
    TextMap,
    /// Text to bool.
    BoolMap,
    List,
    Object,
}

impl Kind {
    pub(super) fn accepts(self, value: &Value) -> bool {
        match self {
            _ if value.is_null() => true,
            Self::Bool => value.is_boolean(),
            Self::Int => value.is_i64() || value.is_u64(),
            Self::Text => value.is_string(),
            Self::Duration => value
                .as_str()
                .is_some_and(|text| go_duration(text).is_some()),
            Self::TextList => value
                .as_array()
                .is_some_and(|list| list.iter().all(Value::is_string)),
            Self::TextMap => value
                .as_object()
                .is_some_and(|map| map.values().all(Value::is_string)),
            Self::BoolMap => value
                .as_object()
                .is_some_and(|map| map.values().all(Value::is_boolean)),
            Self::List => value.is_array(),
            Self::Object => value.is_object(),
        }
    }

    pub(super) const fn as_str(self) -> &'static str {
        match self {
            Self::Bool => "a boolean",
            Self::Int => "an integer",
            Self::Text => "a string",
            Self::Duration => "a duration such as 1m30s",
            Self::TextList => "a list of strings",
            Self::TextMap => "a map of strings",
            Self::BoolMap => "a map of booleans",
            Self::List => "a list",
            Self::Object => "an object",
        }
    }
}

/// Milliseconds of a duration in Go's notation (`1h15m30.5s`, `250ms`, `0`), negative ones
/// included; anything finer than a millisecond is dropped.
pub(super) fn go_duration(text: &str) -> Option<i64> {
    let (sign, mut rest) = match text.strip_prefix('-') {
        Some(rest) => (-1.0, rest),
        None => (1.0, text.strip_prefix('+').unwrap_or(text)),
    };
    if rest == "0" {
        return Some(0);
    }
    let mut millis = 0.0_f64;
    let mut parts = 0;
    while !rest.is_empty() {
        let end = rest.find(|c: char| !c.is_ascii_digit() && c != '.')?;
        let (number, tail) = rest.split_at(end);
        let unit_end = tail
            .find(|c: char| c.is_ascii_digit() || c == '.')
            .unwrap_or(tail.len());
        let (unit, tail) = tail.split_at(unit_end);
        let unit_millis = match unit {
            "ns" => 1e-6,
            "us" | "µs" | "μs" => 1e-3,
            "ms" => 1.0,
            "s" => 1e3,
            "m" => 6e4,
            "h" => 3.6e6,
            _ => return None,
        };
        millis += number.parse::<f64>().ok()? * unit_millis;
        parts += 1;
        rest = tail;
    }
    // 2^53 milliseconds are 285,000 years: more is a slip, not a duration.
    #[expect(clippy::cast_possible_truncation, reason = "the range is checked")]
    (parts > 0 && millis < 9.0e15).then_some((sign * millis) as i64)
}

/// The type of a field; `None` for a field that does not exist.
pub(super) fn kind(field: &str) -> Option<Kind> {
    FIELDS
        .binary_search_by(|(name, _)| (*name).cmp(field))
        .ok()
        .and_then(|at| FIELDS.get(at))
        .map(|(_, kind)| *kind)
}

use Kind::{Bool, BoolMap, Duration, Int, List, Object, Text, TextList, TextMap};

/// Sorted by name.
#[rustfmt::skip]
pub(super) const FIELDS: &[(&str, Kind)] = &[
    ("address", Text),
    ("allowedUnsafeSysctls", TextList),
    ("apiVersion", Text),
    ("authentication", Object),
    ("authorization", Object),
    ("cgroupDriver", Text),
    ("cgroupRoot", Text),
    ("cgroupsPerQOS", Bool),
    ("clusterDNS", TextList),
    ("clusterDomain", Text),
    ("configMapAndSecretChangeDetectionStrategy", Text),
    ("containerLogMaxFiles", Int),
    ("containerLogMaxSize", Text),
    ("containerLogMaxWorkers", Int),
    ("containerLogMonitorInterval", Duration),
    ("containerRuntimeEndpoint", Text),
    ("contentType", Text),
    ("cpuCFSQuota", Bool),
    ("cpuCFSQuotaPeriod", Duration),
    ("cpuManagerPolicy", Text),
    ("cpuManagerPolicyOptions", TextMap),
    ("cpuManagerReconcilePeriod", Duration),
    ("crashLoopBackOff", Object),
    ("enableContentionProfiling", Bool),
    ("enableControllerAttachDetach", Bool),
    ("enableDebugFlagsHandler", Bool),
    ("enableDebuggingHandlers", Bool),
    ("enableProfilingHandler", Bool),
    ("enableServer", Bool),
    ("enableSystemLogHandler", Bool),
    ("enableSystemLogQuery", Bool),
    ("enforceNodeAllocatable", TextList),
    ("eventBurst", Int),
    ("eventRecordQPS", Int),
    ("evictionHard", TextMap),
    ("evictionMaxPodGracePeriod", Int),
    ("evictionMinimumReclaim", TextMap),
    ("evictionPressureTransitionPeriod", Duration),
    ("evictionSoft", TextMap),
    ("evictionSoftGracePeriod", TextMap),
    ("failCgroupV1", Bool),
    ("failSwapOn", Bool),
    ("featureGates", BoolMap),
    ("fileCheckFrequency", Duration),
    ("hairpinMode", Text),
    ("healthzBindAddress", Text),
    ("healthzPort", Int),
    ("httpCheckFrequency", Duration),
    ("imageGCHighThresholdPercent", Int),
    ("imageGCLowThresholdPercent", Int),
    ("imageMaximumGCAge", Duration),
    ("imageMinimumGCAge", Duration),
    ("imagePullCredentialsVerificationPolicy", Text),
    ("imageServiceEndpoint", Text),
    ("iptablesDropBit", Int),
    ("iptablesMasqueradeBit", Int),
    ("kernelMemcgNotification", Bool),
    ("kind", Text),
    ("kubeAPIBurst", Int),
    ("kubeAPIQPS", Int),
    ("kubeReserved", TextMap),
    ("kubeReservedCgroup", Text),
    ("kubeletCgroups", Text),
    ("localStorageCapacityIsolation", Bool),
    ("logging", Object),
    ("makeIPTablesUtilChains", Bool),
    ("maxOpenFiles", Int),
    ("maxParallelImagePulls", Int),
    ("maxPods", Int),
    ("memoryManagerPolicy", Text),
    ("memoryReservationPolicy", Text),
    ("memorySwap", Object),
    ("memoryThrottlingFactor", Object),
    ("mergeDefaultEvictionSettings", Bool),
    ("nodeLeaseDurationSeconds", Int),
    ("nodeStatusMaxImages", Int),
    ("nodeStatusReportFrequency", Duration),
    ("nodeStatusUpdateFrequency", Duration),
    ("oomScoreAdj", Int),
    ("podCIDR", Text),
    ("podLogsDir", Text),
    ("podPidsLimit", Int),
    ("podsPerCore", Int),
    ("port", Int),
    ("preloadedImagesVerificationAllowlist", TextList),
    ("protectKernelDefaults", Bool),
    ("providerID", Text),
    ("qosReserved", TextMap),
    ("readOnlyPort", Int),
    ("registerNode", Bool),
    ("registerWithTaints", List),
    ("registryBurst", Int),
    ("registryPullQPS", Int),
    ("reservedMemory", List),
    ("reservedSystemCPUs", Text),
    ("resolvConf", Text),
    ("rotateCertificates", Bool),
    ("runOnce", Bool),
    ("runtimeRequestTimeout", Duration),
    ("seccompDefault", Bool),
    ("serializeImagePulls", Bool),
    ("serverTLSBootstrap", Bool),
    ("showHiddenMetricsForVersion", Text),
    ("shutdownGracePeriod", Duration),
    ("shutdownGracePeriodByPodPriority", List),
    ("shutdownGracePeriodCriticalPods", Duration),
    ("singleProcessOOMKill", Bool),
    ("staticPodPath", Text),
    ("staticPodURL", Text),
    ("staticPodURLHeader", Object),
    ("streamingConnectionIdleTimeout", Duration),
    ("syncFrequency", Duration),
    ("systemCgroups", Text),
    ("systemReserved", TextMap),
    ("systemReservedCgroup", Text),
    ("tlsCertFile", Text),
    ("tlsCipherSuites", TextList),
    ("tlsCurvePreferences", List),
    ("tlsMinVersion", Text),
    ("tlsPrivateKeyFile", Text),
    ("topologyManagerPolicy", Text),
    ("topologyManagerPolicyOptions", TextMap),
    ("topologyManagerScope", Text),
    ("tracing", Object),
    ("userNamespaces", Object),
    ("volumePluginDir", Text),
    ("volumeStatsAggPeriod", Duration),
];

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn fields_are_sorted_for_the_search() {
        assert!(FIELDS.windows(2).all(|pair| pair[0].0 < pair[1].0));
        assert_eq!(kind("maxPods"), Some(Int));
        assert_eq!(kind("maxpods"), None);
    }

    #[test]
    fn durations_are_those_of_go() {
        for (text, millis) in [
            ("30s", Some(30_000)),
            ("1m30s", Some(90_000)),
            ("1.5h", Some(5_400_000)),
            ("250ms", Some(250)),
            ("-1s", Some(-1_000)),
            ("0", Some(0)),
            ("30", None),
            ("", None),
            ("1d", None),
            ("s", None),
        ] {
            assert_eq!(go_duration(text), millis, "{text:?}");
        }
        assert!(!Duration.accepts(&json!(30)));
    }
}
