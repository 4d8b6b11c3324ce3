//! Every route of the REST port, in one table: from it come the router, the index and the OpenAPI document.

use axum::http::Method;

/// What a route does. Its name is the method in metrics and the `operationId` of the document.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Call {
    Index,
    OpenApi,
    GetRegistry,
    Register,
    Renew,
    RemoveCluster,
    PutExport,
    PutEndpoints,
    DeleteExport,
    Write,
    Sync,
    Watch,
    ListClusters,
    GetCluster,
    ListExports,
    GetExport,
    ListImports,
    GetImport,
}

impl Call {
    /// The name.
    pub(super) const fn name(self) -> &'static str {
        match self {
            Self::Index => "Index",
            Self::OpenApi => "OpenApi",
            Self::GetRegistry => "GetRegistry",
            Self::Register => "Register",
            Self::Renew => "Renew",
            Self::RemoveCluster => "RemoveCluster",
            Self::PutExport => "PutExport",
            Self::PutEndpoints => "PutEndpoints",
            Self::DeleteExport => "DeleteExport",
            Self::Write => "Write",
            Self::Sync => "Sync",
            Self::Watch => "Watch",
            Self::ListClusters => "ListClusters",
            Self::GetCluster => "GetCluster",
            Self::ListExports => "ListExports",
            Self::GetExport => "GetExport",
            Self::ListImports => "ListImports",
            Self::GetImport => "GetImport",
        }
    }
}

/// A route.
#[derive(Debug)]
pub(super) struct Route {
    pub(super) method: Method,
    /// Parameters have the names of the fields that they fill.
    pub(super) path: &'static str,
    pub(super) call: Call,
    /// What it does, in a line.
    pub(super) summary: &'static str,
    pub(super) about: About,
    /// Fields of the request that the query may give.
    pub(super) query: &'static [Param],
    pub(super) takes: Takes,
    pub(super) gives: Gives,
}

/// Where a route is explained.
#[derive(Debug)]
pub(super) enum About {
    /// At the gRPC method that does the same, as `Members.Register`; and what is particular here.
    Rpc(&'static str, &'static str),
    /// Here.
    Text(&'static str),
}

/// A field that the query may give.
#[derive(Debug)]
pub(super) struct Param {
    /// Its JSON name.
    pub(super) name: &'static str,
    /// The message that has it.
    pub(super) of: &'static str,
    /// Whether it is true or false.
    pub(super) is_flag: bool,
}

const fn text(name: &'static str, of: &'static str) -> Param {
    Param { name, of, is_flag: false }
}

const fn flag(name: &'static str, of: &'static str) -> Param {
    Param { name, of, is_flag: true }
}

/// The body of a request.
#[derive(Debug)]
pub(super) enum Takes {
    /// None is read.
    Nothing,
    /// One JSON object, with these fields of these messages; those in the path may be left out.
    Object(&'static [(&'static str, &'static [&'static str])]),
    /// Messages one after another.
    Stream(&'static str),
}

/// The answer to a request that is served.
#[derive(Debug)]
pub(super) enum Gives {
    /// Something that is no message.
    Document,
    /// A message.
    Message(&'static str),
    /// Messages, one a line; a last line may tell an error.
    Stream(&'static str),
}

const REGISTRY: &str = "/v1/registry";
const CLUSTERS: &str = "/v1/clustersets/{clusterset}/clusters";
const CLUSTER: &str = "/v1/clustersets/{clusterset}/clusters/{cluster}";
const RENEW: &str = "/v1/clustersets/{clusterset}/clusters/{cluster}/renew";
const WRITE: &str = "/v1/clustersets/{clusterset}/clusters/{cluster}/write";
const SYNC: &str = "/v1/clustersets/{clusterset}/clusters/{cluster}/sync";
const EXPORT: &str = "/v1/clustersets/{clusterset}/clusters/{cluster}/exports/{namespace}/{name}";
const ENDPOINTS: &str =
    "/v1/clustersets/{clusterset}/clusters/{cluster}/exports/{namespace}/{name}/endpoints";
const EXPORTS: &str = "/v1/clustersets/{clusterset}/exports";
const IMPORTS: &str = "/v1/clustersets/{clusterset}/imports";
const IMPORT: &str = "/v1/clustersets/{clusterset}/imports/{namespace}/{name}";
const WATCH: &str = "/v1/clustersets/{clusterset}/imports/watch";

/// All routes; those of one path follow each other.
pub(super) static ROUTES: [Route; 18] = [
    Route {
        method: Method::GET,
        path: "/",
        call: Call::Index,
        summary: "What is served here",
        about: About::Text("The routes and the version of the program, for people."),
        query: &[],
        takes: Takes::Nothing,
        gives: Gives::Document,
    },
    Route {
        method: Method::GET,
        path: "/openapi.json",
        call: Call::OpenApi,
        summary: "This document",
        about: About::Text("An OpenAPI description of this API."),
        query: &[],
        takes: Takes::Nothing,
        gives: Gives::Document,
    },
    Route {
        method: Method::GET,
        path: REGISTRY,
        call: Call::GetRegistry,
        summary: "Get the registry",
        about: About::Rpc("Imports.GetRegistry", ""),
        query: &[],
        takes: Takes::Nothing,
        gives: Gives::Message("GetRegistryResponse"),
    },
    Route {
        method: Method::GET,
        path: CLUSTERS,
        call: Call::ListClusters,
        summary: "List clusters",
        about: About::Rpc("Imports.ListClusters", ""),
        query: &[text("pageSize", "ListClustersRequest"), text("pageToken", "ListClustersRequest")],
        takes: Takes::Nothing,
        gives: Gives::Message("ListClustersResponse"),
    },
    Route {
        method: Method::GET,
        path: CLUSTER,
        call: Call::GetCluster,
        summary: "Get a cluster",
        about: About::Text("A member of a clusterset, as in the list of clusters."),
        query: &[],
        takes: Takes::Nothing,
        gives: Gives::Message("Cluster"),
    },
    Route {
        method: Method::PUT,
        path: CLUSTER,
        call: Call::Register,
        summary: "Register a cluster",
        about: About::Rpc("Members.Register", ""),
        query: &[],
        takes: Takes::Object(&[(
            "RegisterRequest",
            &["uid", "region", "instance", "build", "version", "sum"],
        )]),
        gives: Gives::Message("RegisterResponse"),
    },
    Route {
        method: Method::DELETE,
        path: CLUSTER,
        call: Call::RemoveCluster,
        summary: "Remove a cluster",
        about: About::Rpc("Members.RemoveCluster", ""),
        query: &[
            text("uid", "RemoveClusterRequest"),
            flag("force", "RemoveClusterRequest"),
            text("onlyUid", "RemoveClusterRequest"),
        ],
        takes: Takes::Nothing,
        gives: Gives::Message("RemoveClusterResponse"),
    },
    Route {
        method: Method::POST,
        path: RENEW,
        call: Call::Renew,
        summary: "Renew a cluster's lease",
        about: About::Rpc("Members.Renew", ""),
        query: &[],
        takes: Takes::Object(&[(
            "RenewRequest",
            &["uid", "version", "sum", "heldImports", "refusedExports"],
        )]),
        gives: Gives::Message("RenewResponse"),
    },
    Route {
        method: Method::POST,
        path: WRITE,
        call: Call::Write,
        summary: "Put and delete several exports",
        about: About::Rpc("Members.Write", "A refused change is a result, not an error: it blocks no other."),
        query: &[],
        takes: Takes::Stream("WriteRequest"),
        gives: Gives::Message("WriteResponse"),
    },
    Route {
        method: Method::POST,
        path: SYNC,
        call: Call::Sync,
        summary: "Make the registry hold exactly what the cluster exports",
        about: About::Rpc(
            "Members.Sync",
            "A caller that cannot read while it writes sends begin, names and namesEnd alone, which ends nothing, reads what is wanted, and sends all of it again with ops and end.",
        ),
        query: &[],
        takes: Takes::Stream("SyncRequest"),
        gives: Gives::Stream("SyncResponse"),
    },
    Route {
        method: Method::GET,
        path: EXPORT,
        call: Call::GetExport,
        summary: "Get an export",
        about: About::Text("One cluster's export of one Service, as in the list of exports."),
        query: &[flag("includeEndpoints", "ListExportsRequest")],
        takes: Takes::Nothing,
        gives: Gives::Message("Export"),
    },
    Route {
        method: Method::PUT,
        path: EXPORT,
        call: Call::PutExport,
        summary: "Put an export with its endpoints",
        about: About::Text(
            "A write of one change. When it is refused, the export stays as it was, and the answer is an error that names the field.",
        ),
        query: &[],
        takes: Takes::Object(&[
            ("WriteRequest", &["uid", "version"]),
            ("PutExport", &["leaf", "spec", "endpoints"]),
        ]),
        gives: Gives::Message("WriteResponse"),
    },
    Route {
        method: Method::DELETE,
        path: EXPORT,
        call: Call::DeleteExport,
        summary: "Delete an export",
        about: About::Text("A write of one change. What is not exported counts as deleted."),
        query: &[text("uid", "WriteRequest"), text("term", "Version"), text("seq", "Version")],
        takes: Takes::Nothing,
        gives: Gives::Message("WriteResponse"),
    },
    Route {
        method: Method::PUT,
        path: ENDPOINTS,
        call: Call::PutEndpoints,
        summary: "Put the endpoints of an export",
        about: About::Text(
            "A write of one change: the definition of the export stays. When it is refused, the export stays as it was, and the answer is an error that names the field.",
        ),
        query: &[],
        takes: Takes::Object(&[
            ("WriteRequest", &["uid", "version"]),
            ("PutEndpoints", &["leaf", "endpoints"]),
        ]),
        gives: Gives::Message("WriteResponse"),
    },
    Route {
        method: Method::GET,
        path: EXPORTS,
        call: Call::ListExports,
        summary: "List exports",
        about: About::Rpc("Imports.ListExports", ""),
        query: &[
            text("cluster", "ListExportsRequest"),
            flag("includeEndpoints", "ListExportsRequest"),
            text("pageSize", "ListExportsRequest"),
            text("pageToken", "ListExportsRequest"),
        ],
        takes: Takes::Nothing,
        gives: Gives::Message("ListExportsResponse"),
    },
    Route {
        method: Method::GET,
        path: IMPORTS,
        call: Call::ListImports,
        summary: "List imports",
        about: About::Rpc("Imports.ListImports", ""),
        query: &[
            flag("includeEndpoints", "ListImportsRequest"),
            text("pageSize", "ListImportsRequest"),
            text("pageToken", "ListImportsRequest"),
        ],
        takes: Takes::Nothing,
        gives: Gives::Message("ListImportsResponse"),
    },
    Route {
        method: Method::GET,
        path: IMPORT,
        call: Call::GetImport,
        summary: "Get an import",
        about: About::Text("A Service that the clusterset imports, as in the list of imports."),
        query: &[flag("includeEndpoints", "ListImportsRequest")],
        takes: Takes::Nothing,
        gives: Gives::Message("Import"),
    },
    Route {
        method: Method::GET,
        path: WATCH,
        call: Call::Watch,
        summary: "Watch imports",
        about: About::Rpc(
            "Imports.Watch",
            "With the epoch of its begin and the last revision it read, a watch that broke goes on where it was. A slow reader skips states that are superseded, never the last one.",
        ),
        query: &[
            text("cluster", "WatchRequest"),
            text("epoch", "WatchRequest"),
            text("revision", "WatchRequest"),
        ],
        takes: Takes::Nothing,
        gives: Gives::Stream("WatchResponse"),
    },
];
