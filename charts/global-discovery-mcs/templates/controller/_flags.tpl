{{/* Arguments of mcs-controller, also of its subcommand leave. */}}
{{- define "mcs.controllerArgs" -}}
{{- $urls := include "mcs.registryUrls" . }}
{{- $leases := include "mcs.leaseNamespace" . }}
{{- with .Values.controller }}
{{- $hasCa := or .registryTlsCa.configMapName .registryTlsCa.secretName }}
{{- $tls := ternary (include "mcs.mount" "registry-tls") "" (ne .registryTls.secretName "") }}
{{- include "mcs.flags" (dict
  "registry-url" $urls
  "registry-allow-insecure-http" .registryAllowInsecureHttp
  "registry-tls-ca-file" (empty $hasCa | ternary "" (printf "%s/%s" (include "mcs.mount" "registry-ca") .registryTlsCa.key))
  "registry-tls-cert-file" (empty $tls | ternary "" (printf "%s/tls.crt" $tls))
  "registry-tls-key-file" (empty $tls | ternary "" (printf "%s/tls.key" $tls))
  "clusterset-id" .clustersetId
  "cluster-id" .clusterId
  "region" .region
  "watch-namespaces" .watchNamespaces
  "create-namespaces" .createNamespaces
  "adopt-unmanaged-imports" .adoptUnmanagedImports
  "leader-election-namespace" $leases
  "leader-election-id" .leaderElectionId
  "admin-listen" .adminListen
  "log-format" .logFormat
  "log-level" .logLevel
) }}
{{- end }}
{{- end }}

{{/* Where a container of mcs-controller finds the files of its arguments. */}}
{{- define "mcs.controllerMounts" -}}
{{- with .Values.controller }}
{{- $hasCa := or .registryTlsCa.configMapName .registryTlsCa.secretName }}
{{- if or $hasCa .registryTls.secretName }}
volumeMounts:
  {{- if $hasCa }}
  - { name: registry-ca, mountPath: {{ include "mcs.mount" "registry-ca" }}, readOnly: true }
  {{- end }}
  {{- if .registryTls.secretName }}
  - { name: registry-tls, mountPath: {{ include "mcs.mount" "registry-tls" }}, readOnly: true }
  {{- end }}
{{- end }}
{{- end }}
{{- end }}

{{/* The volumes of these mounts. Of the CA's ConfigMap or Secret only the CA is mounted. */}}
{{- define "mcs.controllerVolumes" -}}
{{- with .Values.controller }}
{{- $ca := .registryTlsCa }}
{{- if or $ca.configMapName $ca.secretName .registryTls.secretName }}
volumes:
  {{- if $ca.configMapName }}
  - name: registry-ca
    configMap:
      name: {{ $ca.configMapName | quote }}
      items: [{ key: {{ $ca.key | quote }}, path: {{ $ca.key | quote }} }]
  {{- else if $ca.secretName }}
  - name: registry-ca
    secret:
      secretName: {{ $ca.secretName | quote }}
      defaultMode: 288
      items: [{ key: {{ $ca.key | quote }}, path: {{ $ca.key | quote }} }]
  {{- end }}
  {{- with .registryTls.secretName }}
  - name: registry-tls
    secret: { secretName: {{ . | quote }}, defaultMode: 288 }
  {{- end }}
{{- end }}
{{- end }}
{{- end }}
