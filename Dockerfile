# Two images of one build, see docs/install.md:
#   --target mcs         mcs-registry, mcs-controller and mcs-admin at /, and the CRDs in /crds
#   --target discovery   global-discovery-service at /
#
# BUILD is where the programs come from: `compiled` builds them here, `prebuilt` takes them from bin/, where `make build`
# leaves them. `make docker-build` takes the other stage out, for engines that build all stages: each ends with an empty
# line, and has no other.

ARG BUILD=compiled
ARG RUST_IMAGE=rust:1.95-bookworm
ARG RUNTIME_IMAGE=gcr.io/distroless/cc-debian12:nonroot

FROM ${RUST_IMAGE} AS compiled
WORKDIR /src
COPY . .
RUN cargo build --release --locked -p mcs-registry -p mcs-controller -p mcs-admin -p global-discovery-service \
  && mkdir /programs \
  && cd target/release \
  && cp mcs-registry mcs-controller mcs-admin global-discovery-service /programs/

FROM scratch AS prebuilt
COPY bin/mcs-registry bin/mcs-controller bin/mcs-admin bin/global-discovery-service /programs/

FROM ${BUILD} AS programs

# What both images say of themselves; a revision and no date, so that a build of the same sources is the same.
FROM ${RUNTIME_IMAGE} AS base
ARG VERSION=unknown
ARG REVISION=unknown
LABEL org.opencontainers.image.version=${VERSION} \
  org.opencontainers.image.revision=${REVISION} \
  org.opencontainers.image.licenses=Apache-2.0
# By number: Kubernetes cannot tell of a name that it is not root.
USER 65532:65532

FROM base AS discovery
LABEL org.opencontainers.image.title=global-discovery-service \
  org.opencontainers.image.description="Tells inference routers which pools exist in all clusters, and relays which routers"
COPY --from=programs /programs/global-discovery-service /
EXPOSE 8080
ENTRYPOINT ["/global-discovery-service"]

FROM base AS mcs
LABEL org.opencontainers.image.title=global-discovery-mcs \
  org.opencontainers.image.description="Services of one Kubernetes cluster in all clusters of a clusterset (KEP-1645)"
COPY --from=programs /programs/mcs-registry /programs/mcs-controller /programs/mcs-admin /
COPY controller/crds/ /crds/
EXPOSE 9090 8080 9091
