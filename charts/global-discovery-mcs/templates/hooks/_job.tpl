{{/* Annotations of what is there for a hook only. What is left of one that failed is replaced by the next.
     Given: hooks, weight. */}}
{{- define "mcs.hook" -}}
helm.sh/hook: {{ .hooks }}
helm.sh/hook-weight: {{ .weight | quote }}
helm.sh/hook-delete-policy: before-hook-creation,hook-succeeded
{{- end }}
