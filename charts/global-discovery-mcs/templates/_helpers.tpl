{{/* Labels of every object. Given: root, name (of the program). */}}
{{- define "mcs.labels" -}}
helm.sh/chart: {{ .root.Chart.Name }}-{{ .root.Chart.Version }}
app.kubernetes.io/version: {{ .root.Chart.AppVersion | quote }}
app.kubernetes.io/part-of: global-discovery-mcs
app.kubernetes.io/managed-by: {{ .root.Release.Service }}
{{ include "mcs.selector" . }}
{{- end }}

{{/* Labels that select the Pods of one program; they never change. Given: root, name. */}}
{{- define "mcs.selector" -}}
app.kubernetes.io/name: {{ .name }}
app.kubernetes.io/instance: {{ .root.Release.Name | quote }}
{{- end }}

{{/* Labels of Pods. No version: a release that changes nothing else would restart them. Given: root, name. */}}
{{- define "mcs.podLabels" -}}
{{ include "mcs.selector" . }}
app.kubernetes.io/part-of: global-discovery-mcs
{{- end }}

{{/* Name of what has no namespace: releases in several namespaces must not share it. Given: root, name. */}}
{{- define "mcs.clusterName" -}}
{{ .name }}:{{ .root.Release.Namespace }}
{{- end }}

{{/* The image. */}}
{{- define "mcs.image" -}}
{{ .Values.image.repository }}:{{ .Values.image.tag | default .Chart.AppVersion }}
{{- end }}

{{/* Arguments of the flags that are set, from a dict of flag and value. YAML gives whole numbers as floats. */}}
{{- define "mcs.flags" -}}
{{- range $flag, $value := . }}
{{- if kindIs "bool" $value }}
{{- if $value }}
- --{{ $flag }}
{{- end }}
{{- else if kindIs "slice" $value }}
{{- if $value }}
- {{ printf "--%s=%s" $flag (join "," $value) | quote }}
{{- end }}
{{- else if kindIs "float64" $value }}
- {{ printf "--%s=%s" $flag (ternary (int64 $value | toString) (toString $value) (eq (floor $value) $value)) | quote }}
{{- else if not (kindIs "invalid" $value) }}
{{- if ne (toString $value) "" }}
- {{ printf "--%s=%v" $flag $value | quote }}
{{- end }}
{{- end }}
{{- end }}
{{- end }}

{{/* The port of an address to listen on, such as [::]:8080. */}}
{{- define "mcs.port" -}}
{{ regexFind "[0-9]+$" . }}
{{- end }}

{{/* What all Pods have in common. */}}
{{- define "mcs.pod" -}}
enableServiceLinks: false
{{- with .Values.imagePullSecrets }}
imagePullSecrets:
  {{- toYaml . | nindent 2 }}
{{- end }}
{{- with .Values.podSecurityContext }}
securityContext:
  {{- toYaml . | nindent 2 }}
{{- end }}
{{- end }}

{{/* What all containers have in common. */}}
{{- define "mcs.container" -}}
image: {{ include "mcs.image" . | quote }}
imagePullPolicy: {{ .Values.image.pullPolicy }}
{{- with .Values.securityContext }}
securityContext:
  {{- toYaml . | nindent 2 }}
{{- end }}
{{- end }}

{{/* On which nodes the Pods of a part may run. Given: the values of the part. */}}
{{- define "mcs.nodes" -}}
{{- with .nodeSelector }}
nodeSelector:
  {{- toYaml . | nindent 2 }}
{{- end }}
{{- with .tolerations }}
tolerations:
  {{- toYaml . | nindent 2 }}
{{- end }}
{{- end }}

{{/* Where the Pods of a Deployment run. Given: root, name, values (of the part). */}}
{{- define "mcs.placement" -}}
{{- with include "mcs.nodes" .values }}
{{- . | trim }}
{{- end }}
{{- with .values.affinity }}
affinity:
  {{- toYaml . | nindent 2 }}
{{- end }}
{{- with .values.priorityClassName }}
priorityClassName: {{ . | quote }}
{{- end }}
topologySpreadConstraints:
{{- if .values.topologySpreadConstraints }}
  {{- toYaml .values.topologySpreadConstraints | nindent 2 }}
{{- else }}
{{- $selector := include "mcs.selector" . }}
{{- range list "topology.kubernetes.io/zone" "kubernetes.io/hostname" }}
  - topologyKey: {{ . }}
    maxSkew: 1
    whenUnsatisfiable: ScheduleAnyway
    matchLabelKeys: [pod-template-hash]
    labelSelector:
      matchLabels:
        {{- $selector | nindent 8 }}
{{- end }}
{{- end }}
{{- end }}

{{/* Probes of a program by its admin port. */}}
{{- define "mcs.probes" -}}
livenessProbe:
  httpGet: { path: /healthz, port: admin }
  periodSeconds: 10
  timeoutSeconds: 5
  failureThreshold: 3
readinessProbe:
  httpGet: { path: /readyz, port: admin }
  periodSeconds: 5
  timeoutSeconds: 5
  failureThreshold: 2
{{- end }}

{{/* A disruption takes one Pod at a time, and one that is not ready at any time. Given: root, name. */}}
{{- define "mcs.disruptionBudget" -}}
apiVersion: policy/v1
kind: PodDisruptionBudget
metadata:
  name: {{ .name }}
  namespace: {{ .root.Release.Namespace | quote }}
  labels:
    {{- include "mcs.labels" . | nindent 4 }}
spec:
  maxUnavailable: 1
  unhealthyPodEvictionPolicy: AlwaysAllow
  selector:
    matchLabels:
      {{- include "mcs.selector" . | nindent 6 }}
{{- end }}

{{/* The registry of this release, as its controller calls it. */}}
{{- define "mcs.ownRegistry" -}}
{{ ternary "https" "http" (ne .Values.registry.tls.secretName "") }}://mcs-registry.{{ .Release.Namespace }}.svc:{{ int .Values.registry.service.grpcPort }}
{{- end }}

{{/* The URLs of registries, comma-separated. */}}
{{- define "mcs.registryUrls" -}}
{{- if .Values.controller.registryUrls }}
{{- join "," .Values.controller.registryUrls }}
{{- else }}
{{- include "mcs.ownRegistry" . }}
{{- end }}
{{- end }}

{{/* The namespace of the Lease of controllers. */}}
{{- define "mcs.leaseNamespace" -}}
{{ .Values.controller.leaderElectionNamespace | default .Release.Namespace }}
{{- end }}

{{/* Files of Secrets and ConfigMaps are mounted here, Secrets for the group of the Pods (0440, which JSON writes as 288). */}}
{{- define "mcs.mount" -}}
/etc/mcs/{{ . }}
{{- end }}
