{{- define "millwright.name" -}}
{{- default .Chart.Name .Values.nameOverride | trunc 63 | trimSuffix "-" }}
{{- end }}

{{- define "millwright.fullname" -}}
{{- if .Values.fullnameOverride }}
{{- .Values.fullnameOverride | trunc 63 | trimSuffix "-" }}
{{- else if contains (include "millwright.name" .) .Release.Name }}
{{- .Release.Name | trunc 63 | trimSuffix "-" }}
{{- else }}
{{- printf "%s-%s" .Release.Name (include "millwright.name" .) | trunc 63 | trimSuffix "-" }}
{{- end }}
{{- end }}

{{- define "millwright.selectorLabels" -}}
app.kubernetes.io/name: {{ include "millwright.name" . }}
app.kubernetes.io/instance: {{ .Release.Name }}
{{- end }}

{{- define "millwright.labels" -}}
helm.sh/chart: {{ printf "%s-%s" .Chart.Name .Chart.Version | replace "+" "_" }}
{{ include "millwright.selectorLabels" . }}
app.kubernetes.io/version: {{ .Chart.AppVersion | quote }}
app.kubernetes.io/managed-by: {{ .Release.Service }}
{{- with .Values.additionalLabels }}
{{ toYaml . }}
{{- end }}
{{- end }}

{{- define "millwright.metadata" -}}
labels:
  {{- include "millwright.labels" . | nindent 2 }}
{{- with .Values.additionalAnnotations }}
annotations:
  {{- toYaml . | nindent 2 }}
{{- end }}
{{- end }}

{{- define "millwright.serviceAccountName" -}}
{{- if .Values.serviceAccount.create }}
{{- default (include "millwright.fullname" .) .Values.serviceAccount.name }}
{{- else }}
{{- default "default" .Values.serviceAccount.name }}
{{- end }}
{{- end }}

{{- define "millwright.image" -}}
{{- with .Values.controller.image }}
{{- if .digest }}{{ .repository }}@{{ .digest }}{{ else }}{{ .repository }}:{{ default $.Chart.AppVersion .tag }}{{ end }}
{{- end }}
{{- end }}

{{/* Affinity and spread terms without a selector mean the controller's own pods. */}}
{{- define "millwright.affinity" -}}
{{- $labels := include "millwright.selectorLabels" . | fromYaml }}
{{- $affinity := deepCopy .Values.affinity }}
{{- range $kind := list "podAffinity" "podAntiAffinity" }}
{{- with index $affinity $kind }}
{{- range .requiredDuringSchedulingIgnoredDuringExecution }}
{{- if not (hasKey . "labelSelector") }}{{ $_ := set . "labelSelector" (dict "matchLabels" $labels) }}{{ end }}
{{- end }}
{{- range .preferredDuringSchedulingIgnoredDuringExecution }}
{{- if not (hasKey .podAffinityTerm "labelSelector") }}{{ $_ := set .podAffinityTerm "labelSelector" (dict "matchLabels" $labels) }}{{ end }}
{{- end }}
{{- end }}
{{- end }}
{{- toYaml $affinity }}
{{- end }}

{{- define "millwright.topologySpreadConstraints" -}}
{{- $labels := include "millwright.selectorLabels" . | fromYaml }}
{{- $constraints := deepCopy .Values.topologySpreadConstraints }}
{{- range $constraints }}
{{- if not (hasKey . "labelSelector") }}{{ $_ := set . "labelSelector" (dict "matchLabels" $labels) }}{{ end }}
{{- end }}
{{- toYaml $constraints }}
{{- end }}

{{- define "millwright.featureGates" -}}
{{- with .Values.settings.featureGates -}}
ReservedCapacity={{ .reservedCapacity }},SpotToSpotConsolidation={{ .spotToSpotConsolidation }},NodeRepair={{ .nodeRepair }},NodeOverlay={{ .nodeOverlay }},StaticCapacity={{ .staticCapacity }},CapacityBuffer={{ .capacityBuffer }}
{{- end -}}
{{- end }}
