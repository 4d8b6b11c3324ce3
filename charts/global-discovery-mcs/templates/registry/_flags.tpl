{{/* Arguments of mcs-registry. */}}
{{- define "mcs.registryArgs" -}}
{{- with .Values.registry }}
{{- $dynamodb := ternary .dynamodb (dict) (eq .store "dynamodb") }}
{{- $tls := ternary (include "mcs.mount" "tls") "" (ne .tls.secretName "") }}
{{- $clientCa := ternary (include "mcs.mount" "client-ca") "" (ne .tls.clientCaSecretName "") }}
{{- include "mcs.flags" (dict
  "grpc-listen" .grpcListen
  "rest-listen" .restListen
  "admin-listen" .adminListen
  "store" .store
  "dynamodb-table" $dynamodb.table
  "region" $dynamodb.region
  "dynamodb-endpoint" $dynamodb.endpoint
  "refresh-interval" $dynamodb.refreshInterval
  "replication-grace" $dynamodb.replicationGrace
  "tls-cert-file" (empty $tls | ternary "" (printf "%s/tls.crt" $tls))
  "tls-key-file" (empty $tls | ternary "" (printf "%s/tls.key" $tls))
  "tls-client-ca-file" (empty $clientCa | ternary "" (printf "%s/%s" $clientCa .tls.clientCaKey))
  "lease-duration" .leaseDuration
  "mass-expiry-threshold" .massExpiryThreshold
  "mass-expiry-hold" .massExpiryHold
  "max-connection-age" .maxConnectionAge
  "max-message-bytes" .maxMessageBytes
  "max-connections" .maxConnections
  "max-streams" .maxStreams
  "max-clusters" .maxClusters
  "max-exports-per-cluster" .maxExportsPerCluster
  "max-writes-per-second" .maxWritesPerSecond
  "log-format" .logFormat
  "log-level" .logLevel
) }}
{{- end }}
{{- end }}
