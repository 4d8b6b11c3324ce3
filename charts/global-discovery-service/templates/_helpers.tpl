{{/* Labels that select the Pods; they never change. */}}
{{- define "gds.selector" -}}
app.kubernetes.io/name: global-discovery-service
app.kubernetes.io/instance: {{ .Release.Name | quote }}
{{- end }}

{{/* Labels of every object. */}}
{{- define "gds.labels" -}}
helm.sh/chart: {{ .Chart.Name }}-{{ .Chart.Version }}
app.kubernetes.io/version: {{ .Chart.AppVersion | quote }}
app.kubernetes.io/managed-by: {{ .Release.Service }}
{{ include "gds.selector" . }}
{{- end }}

{{/* Name of what has no namespace: releases in several namespaces must not share it. */}}
{{- define "gds.clusterName" -}}
global-discovery-service:{{ .Release.Namespace }}
{{- end }}

{{/* Whether lists come from EndpointSlices; empty where they do not. */}}
{{- define "gds.readsSlices" -}}
{{- if ne .Values.poolDiscovery "registrations" }}yes{{ end }}
{{- end }}

{{/* Where registrations are kept, in one word. */}}
{{- define "gds.storage" -}}
{{- with .Values.dynamodb }}
{{- if eq $.Values.registrationStorage "memory" }}memory{{ else }}dynamodb {{ .region }} {{ .endpoint }} {{ .table }}{{ end }}
{{- end }}
{{- end }}

{{/* Whether the replicas that run keep registrations elsewhere; only a cluster can tell. Empty where they do not. */}}
{{- define "gds.storageChanges" -}}
{{- $running := lookup "apps/v1" "Deployment" .Release.Namespace "global-discovery-service" }}
{{- if $running }}
{{- if ne (dig "metadata" "annotations" (include "gds.storageAnnotation" .) "" $running) (include "gds.storage" .) }}yes{{ end }}
{{- end }}
{{- end }}

{{- define "gds.storageAnnotation" -}}
global-discovery.dynamo.nvidia.com/storage
{{- end }}

{{/* Arguments of the flags that are set, from a dict of flag and value. YAML gives whole numbers as floats. */}}
{{- define "gds.flags" -}}
{{- range $flag, $value := . }}
{{- if kindIs "bool" $value }}
{{- if $value }}
- --{{ $flag }}
{{- end }}
{{- else if kindIs "slice" $value }}
{{- range $value }}
- {{ printf "--%s=%s" $flag . | quote }}
{{- end }}
{{- else if kindIs "float64" $value }}
- {{ printf "--%s=%d" $flag (int64 $value) | quote }}
{{- else if not (kindIs "invalid" $value) }}
{{- if ne (toString $value) "" }}
- {{ printf "--%s=%v" $flag $value | quote }}
{{- end }}
{{- end }}
{{- end }}
{{- end }}

{{/* Arguments of the program. */}}
{{- define "gds.args" -}}
{{- with .Values }}
{{- $tls := ternary "/etc/gds/tls" "" (ne .tls.secretName "") }}
{{- $clientCa := ternary "/etc/gds/client-ca" "" (ne .tls.clientCaSecretName "") }}
{{- include "gds.flags" (dict
  "pool-discovery" .poolDiscovery
  "registration-storage" .registrationStorage
  "lease-duration-secs" .leaseDurationSecs
  "heartbeat-interval-secs" .heartbeatIntervalSecs
  "max-pools" .maxPools
  "router" .routers
  "router-namespace" .router.namespace
  "router-service" .router.service
  "router-port-name" .router.portName
  "pool-service-suffix" .pool.serviceSuffix
  "frontend-service-suffix" .frontend.serviceSuffix
  "frontend-port-name" .frontend.portName
  "dynamodb-table" .dynamodb.table
  "dynamodb-region" .dynamodb.region
  "dynamodb-endpoint" .dynamodb.endpoint
  "dynamodb-ensure-table" .dynamodb.ensureTable
  "dynamodb-poll-interval-secs" .dynamodb.pollIntervalSecs
  "dynamodb-replication-grace-secs" .dynamodb.replicationGraceSecs
  "lease-skew-secs" .dynamodb.leaseSkewSecs
  "tls-cert-path" (empty $tls | ternary "" (printf "%s/tls.crt" $tls))
  "tls-key-path" (empty $tls | ternary "" (printf "%s/tls.key" $tls))
  "tls-client-ca-cert-path" (empty $clientCa | ternary "" (printf "%s/%s" $clientCa .tls.clientCaKey))
  "listen" .listen
  "max-body-bytes" .maxBodyBytes
  "max-connections" .maxConnections
  "max-streams" .maxStreams
  "drain-delay-secs" .drainDelaySecs
  "shutdown-grace-secs" .shutdownGraceSecs
  "log-format" .logFormat
  "log-level" .logLevel
) }}
{{- end }}
{{- end }}

{{/* The port of the listener. */}}
{{- define "gds.port" -}}
{{ regexFind "[0-9]+$" .Values.listen }}
{{- end }}

{{/* How a probe asks; it needs no certificate, also where clients do. Given: root, path. */}}
{{- define "gds.probe" -}}
{{- with .root.Values.tls }}
{{- if .secretName -}}
httpGet: { path: {{ $.path }}, port: http, scheme: HTTPS }
{{- else -}}
httpGet: { path: {{ $.path }}, port: http }
{{- end }}
{{- end }}
{{- end }}
