{{/* A binding of the role `role` to the ServiceAccount mcs-controller. Given: root, kind (of the role), name (of role and
     binding), namespace (of a Role; a ClusterRole is bound everywhere). */}}
{{- define "mcs.binding" -}}
apiVersion: rbac.authorization.k8s.io/v1
kind: {{ .kind }}Binding
metadata:
  name: {{ .name | quote }}
  {{- with .namespace }}
  namespace: {{ . | quote }}
  {{- end }}
  labels:
    {{- include "mcs.labels" (dict "root" .root "name" "mcs-controller") | nindent 4 }}
roleRef:
  apiGroup: rbac.authorization.k8s.io
  kind: {{ .kind }}
  name: {{ .name | quote }}
subjects:
  - kind: ServiceAccount
    name: mcs-controller
    namespace: {{ .root.Release.Namespace | quote }}
{{- end }}

{{/* A role without its rules, and before it its binding. Given as to mcs.binding. */}}
{{- define "mcs.role" -}}
{{ include "mcs.binding" . }}
---
apiVersion: rbac.authorization.k8s.io/v1
kind: {{ .kind }}
metadata:
  name: {{ .name | quote }}
  {{- with .namespace }}
  namespace: {{ . | quote }}
  {{- end }}
  labels:
    {{- include "mcs.labels" (dict "root" .root "name" "mcs-controller") | nindent 4 }}
{{- end }}

{{/* What the controller does in every namespace that it watches. */}}
{{- define "mcs.watchedRules" -}}
# Exports are made of Services and their slices; imports are derived Services and slices.
- apiGroups: [""]
  resources: [services]
  verbs: [list, watch, create, patch, update, delete]
- apiGroups: [discovery.k8s.io]
  resources: [endpointslices]
  verbs: [list, watch, create, patch, update, delete]
- apiGroups: [multicluster.x-k8s.io]
  resources: [serviceexports]
  verbs: [list, watch, create, patch, delete]
- apiGroups: [multicluster.x-k8s.io]
  resources: [serviceimports]
  verbs: [list, watch, create, patch, update, delete]
- apiGroups: [multicluster.x-k8s.io]
  resources: [serviceexports/status, serviceimports/status]
  verbs: [patch]
- apiGroups: [events.k8s.io]
  resources: [events]
  verbs: [create, patch]
{{- end }}
