//! An API server in memory that carries out steps, and builders for what is planned.

use mcs_core::ids::{ClusterId, ClusterUid, ClustersetId, Region, ServiceKey};
use mcs_core::model::{
    Endpoint, EndpointMap, EndpointPort, EndpointSet, GoodPort, GroupKey, ImportDefinition, IpFamily, Port,
    Protocol,
};
use mcs_core::names;
use mcs_core::plan::{
    DerivedService, Entries, Existing, Identity, ImportObject, ImportStatus, ImportedSlice, Meta, Ownership,
    PlanConfig, ServiceSpec, SliceKeeper, Step, WantedImport, WantedService, WantedSlice, plan,
};
use mcs_core::version::Version;
use mcs_core::view::{Decision, Shown, Source, Wanted};
use std::collections::{BTreeMap, BTreeSet};
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};
use std::sync::Arc;

/// A plan that takes more rounds than this does not end.
const MANY_ROUNDS: usize = 10;

/// What exists, and what the API server does with steps.
#[derive(Clone, Default)]
pub(crate) struct World {
    pub(crate) existing: Existing,
    /// Ports of the derived Service that another manager owns.
    pub(crate) foreign_ports: Vec<Port>,
    uids: u64,
    versions: u64,
}

impl World {
    /// Plans and carries out until no write is left; gives the steps of each round.
    pub(crate) fn settle(&mut self, decision: &Decision) -> Vec<Vec<Step>> {
        self.settle_key(&key(), decision, &config())
    }

    pub(crate) fn settle_key(
        &mut self,
        key: &ServiceKey,
        decision: &Decision,
        config: &PlanConfig,
    ) -> Vec<Vec<Step>> {
        let mut rounds = Vec::new();
        loop {
            let steps = plan(key, decision, &self.existing, config);
            if !steps.iter().any(Step::is_write) {
                return rounds;
            }
            for step in &steps {
                self.run(step);
            }
            rounds.push(steps);
            assert!(rounds.len() < MANY_ROUNDS, "no end: {rounds:#?}");
        }
    }

    /// Carries out only the first `steps` steps, as a process does that dies then.
    pub(crate) fn die_after(&mut self, mut steps: usize, decision: &Decision) {
        while steps > 0 {
            let planned = plan(&key(), decision, &self.existing, &config());
            if !planned.iter().any(Step::is_write) {
                return;
            }
            for step in planned.iter().take(steps) {
                self.run(step);
            }
            steps = steps.saturating_sub(planned.len());
        }
    }

    pub(crate) fn run(&mut self, step: &Step) {
        match step {
            Step::CreateImport(wanted) => {
                assert_eq!(self.existing.import, None);
                let meta = self.meta("cart", &wanted.labels, &wanted.annotations, None);
                let (spec, status) = (wanted.spec.clone(), ImportStatus::default());
                self.existing.import = Some(ImportObject { meta, spec, status });
            }
            Step::UpdateImport { base, wanted: WantedImport { labels, annotations, spec }, .. } => {
                let import = self.existing.import.as_mut().expect("an import");
                check(&import.meta, base);
                import.spec = spec.clone();
                import.meta.labels = labels.clone();
                import.meta.annotations = annotations.clone();
                import.meta.ownership = Ownership::of(labels, annotations, &clusterset());
                bump(&mut self.versions, &mut import.meta);
            }
            Step::UpdateImportStatus { base, status } => {
                let import = self.existing.import.as_mut().expect("an import");
                check(&import.meta, base);
                import.status = status.clone();
                bump(&mut self.versions, &mut import.meta);
            }
            Step::CreateService(wanted) => {
                assert_eq!(self.existing.service, None);
                let meta = self.meta(&wanted.name, &wanted.labels, &wanted.annotations, Some(&wanted.owner));
                let cluster_ips = self.cluster_ips(&wanted.spec, &[]);
                let (spec, stray) = (wanted.spec.clone(), BTreeSet::new());
                self.existing.service = Some(DerivedService { meta, spec, cluster_ips, stray });
            }
            Step::UpdateService { base, wanted, full } => self.update_service(base, wanted, *full),
            Step::DeleteService(base) => {
                check(&self.existing.service.take().expect("a Service").meta, base);
            }
            Step::CreateSlice(wanted) => {
                let taken = |slice: &ImportedSlice| slice.meta.identity.name == wanted.name;
                assert!(!self.existing.slices.iter().any(taken), "{} exists", wanted.name);
                let meta = self.meta(&wanted.name, &wanted.labels, &wanted.annotations, Some(&wanted.owner));
                self.existing.slices.push(slice(meta, wanted));
            }
            Step::UpdateSlice { base, wanted } => {
                let found = self.find_slice(base);
                let mut meta = found.meta.clone();
                assert_eq!(found.group.family, wanted.family, "an address type never changes");
                meta.labels = wanted.labels.clone();
                meta.annotations = wanted.annotations.clone();
                meta.owner = Some(wanted.owner.clone());
                let mut versions = self.versions;
                bump(&mut versions, &mut meta);
                *self.find_slice(base) = slice(meta, wanted);
                self.versions = versions;
            }
            Step::DeleteSlice(base) => {
                self.find_slice(base);
                self.existing.slices.retain(|slice| slice.meta.identity != *base);
            }
            Step::RemoveForeignSlices(bases) => {
                for base in bases {
                    self.find_slice(base);
                    self.existing.slices.retain(|slice| slice.meta.identity != *base);
                }
            }
            Step::DeleteImport(base) => {
                let import = self.existing.import.take().expect("an import");
                check(&import.meta, base);
                self.collect_garbage(&import.meta.identity.uid);
            }
            Step::Report(_) => {}
        }
        self.check_invariants();
    }

    /// What deleting an owner does to what it owns.
    pub(crate) fn collect_garbage(&mut self, owner: &str) {
        self.existing.service.take_if(|service| service.meta.owner.as_deref() == Some(owner));
        self.existing.slices.retain(|slice| slice.meta.owner.as_deref() != Some(owner));
    }

    /// All addresses of the slices of `cluster`, whatever their slot.
    pub(crate) fn addresses(&self, cluster: &str) -> Vec<IpAddr> {
        let slices = self.existing.slices.iter().filter(|slice| slice.source == Some(id(cluster)));
        let mut addresses: Vec<IpAddr> = slices.flat_map(|slice| slice.endpoints.keys().copied()).collect();
        addresses.sort_unstable();
        addresses
    }

    /// What exists, without what depends on the order of writes.
    pub(crate) fn shape(&self) -> Existing {
        let mut existing = self.existing.clone();
        let owner = existing.import.as_ref().map(|import| import.meta.identity.uid.clone());
        let plain = |meta: &mut Meta| {
            meta.identity.uid = String::new();
            meta.identity.resource_version = String::new();
            assert!(meta.owner.is_none() || meta.owner == owner, "{meta:?} has another owner than {owner:?}");
            meta.owner = meta.owner.as_ref().map(|_| String::new());
        };
        existing.import.iter_mut().for_each(|import| plain(&mut import.meta));
        existing.service.iter_mut().for_each(|service| plain(&mut service.meta));
        existing.slices.iter_mut().for_each(|slice| plain(&mut slice.meta));
        existing.slices.sort_by(|a, b| a.meta.identity.name.cmp(&b.meta.identity.name));
        existing
    }

    /// The metadata of an object that is made now.
    pub(crate) fn meta(
        &mut self,
        name: &str,
        labels: &Entries,
        annotations: &Entries,
        owner: Option<&String>,
    ) -> Meta {
        self.uids += 1;
        self.versions += 1;
        let uid = format!("uid-{}", self.uids);
        Meta {
            identity: Identity { name: name.to_owned(), uid, resource_version: self.versions.to_string() },
            ownership: Ownership::of(labels, annotations, &clusterset()),
            deleting: false,
            labels: labels.clone(),
            annotations: annotations.clone(),
            owner: owner.cloned(),
        }
    }

    fn update_service(&mut self, base: &Identity, wanted: &WantedService, full: bool) {
        let mut service = self.existing.service.take().expect("a Service");
        check(&service.meta, base);
        assert_eq!(service.spec.headless, wanted.spec.headless, "clusterIP None never changes");
        service.spec = wanted.spec.clone();
        if full {
            service.stray.clear();
            self.foreign_ports.clear();
        } else {
            service.spec.ports.extend(self.foreign_ports.iter().cloned());
        }
        service.cluster_ips = self.cluster_ips(&wanted.spec, &service.cluster_ips);
        service.meta.labels = wanted.labels.clone();
        service.meta.annotations = wanted.annotations.clone();
        service.meta.owner = Some(wanted.owner.clone());
        bump(&mut self.versions, &mut service.meta);
        self.existing.service = Some(service);
    }

    fn cluster_ips(&self, spec: &ServiceSpec, before: &[IpAddr]) -> Vec<IpAddr> {
        if spec.headless {
            return Vec::new();
        }
        let given = |family: &IpFamily| match family {
            IpFamily::V4 => IpAddr::V4(Ipv4Addr::new(10, 96, 0, self.uids as u8)),
            IpFamily::V6 => IpAddr::V6(Ipv6Addr::new(0xfd96, 0, 0, 0, 0, 0, 0, self.uids as u16)),
        };
        let kept = |family: &IpFamily| before.iter().find(|ip| IpFamily::of(**ip) == *family).copied();
        spec.ip_families.iter().map(|family| kept(family).unwrap_or_else(|| given(family))).collect()
    }

    fn find_slice(&mut self, base: &Identity) -> &mut ImportedSlice {
        let found = self.existing.slices.iter_mut().find(|slice| slice.meta.identity.name == base.name);
        let found = found.expect("a slice of that name");
        check(&found.meta, base);
        found
    }

    /// What holds after every step, also when the process dies then.
    fn check_invariants(&self) {
        let families =
            |slice: &ImportedSlice| slice.endpoints.keys().all(|ip| IpFamily::of(*ip) == slice.group.family);
        for slice in self.existing.slices.iter().filter(|slice| slice.meta.ownership == Ownership::Ours) {
            assert!(families(slice), "{slice:?} mixes families");
            assert!((1..=100).contains(&slice.endpoints.len()), "{} endpoints", slice.endpoints.len());
            assert!(slice.meta.labels.values().all(|value| value.len() <= 63), "{:?}", slice.meta.labels);
            assert!(slice.meta.identity.name.len() <= 63, "{}", slice.meta.identity.name);
        }
    }
}

fn check(meta: &Meta, base: &Identity) {
    assert_eq!(meta.identity, *base, "a step is bound to what was read");
    assert!(!meta.deleting, "what is on its way out is not written");
}

fn bump(versions: &mut u64, meta: &mut Meta) {
    *versions += 1;
    meta.identity.resource_version = versions.to_string();
}

fn slice(meta: Meta, wanted: &WantedSlice) -> ImportedSlice {
    ImportedSlice {
        meta,
        keeper: SliceKeeper::Other,
        source: wanted.labels.get(names::LABEL_SOURCE_CLUSTER).map(|cluster| id(cluster)),
        group: GroupKey::new(wanted.family, wanted.ports.iter().cloned()),
        endpoints: wanted.endpoints.clone(),
        stray: false,
    }
}

pub(crate) fn key() -> ServiceKey {
    ServiceKey::new("shop", "cart").expect("a key")
}

pub(crate) fn id(cluster: &str) -> ClusterId {
    ClusterId::new(cluster).expect("a cluster id")
}

pub(crate) fn clusterset() -> ClustersetId {
    ClustersetId::new("prod").expect("a clusterset id")
}

pub(crate) fn config() -> PlanConfig {
    PlanConfig {
        clusterset: clusterset(),
        cluster: id("gamma"),
        adopt_unmanaged: false,
        served_families: vec![IpFamily::V4, IpFamily::V6],
        slices_present_kept: true,
        node_hints_kept: true,
        import_refused: false,
    }
}

pub(crate) fn port(name: &str, protocol: Protocol, port: u16) -> Port {
    Port { name: name.to_owned(), protocol, port, app_protocol: None }
}

/// A definition with one port, http 80, on IPv4.
pub(crate) fn definition() -> ImportDefinition {
    ImportDefinition {
        ports: vec![port("http", Protocol::Tcp, 80)],
        ip_families: vec![IpFamily::V4],
        ..ImportDefinition::default()
    }
}

pub(crate) fn group(family: IpFamily, ports: &[(&str, u16)]) -> GroupKey {
    let port = |(name, number): &(&str, u16)| EndpointPort {
        name: (*name).to_owned(),
        port: Some(*number),
        ..EndpointPort::default()
    };
    GroupKey::new(family, ports.iter().map(port))
}

/// Ready endpoints that listen on http 8080.
pub(crate) fn endpoints(addresses: impl IntoIterator<Item = IpAddr>) -> EndpointSet {
    let mut set = EndpointMap::default();
    for address in addresses {
        let endpoint = Endpoint { ready: Some(true), ..Endpoint::default() };
        set.insert(group(IpFamily::of(address), &[("http", 8080)]), address, endpoint);
    }
    set.pack()
}

/// The addresses 10.`net`.0.1 and on, `count` of them.
pub(crate) fn net(net: u8, count: u32) -> impl Iterator<Item = IpAddr> {
    let base = u32::from(Ipv4Addr::new(10, net, 0, 1));
    (0..count).map(move |n| IpAddr::V4(Ipv4Addr::from(base + n)))
}

pub(crate) fn shown(endpoints: EndpointSet, seq: u64) -> Shown {
    Shown {
        uid: Some(ClusterUid::new("uid-of-source").expect("a uid")),
        region: Some(Region::new("eu-west-1").expect("a region")),
        version: Some(Version::new(1, seq)),
        good_ports: vec![GoodPort { import_name: "http".to_owned(), export_name: "http".to_owned() }],
        endpoints: Arc::new(endpoints),
    }
}

/// What the tests want of the import: the definition, and the endpoints of clusters.
pub(crate) fn wanted<const N: usize>(definition: ImportDefinition, sources: [(&str, Source); N]) -> Decision {
    let sources: BTreeMap<_, _> =
        sources.into_iter().map(|(cluster, source)| (id(cluster), source)).collect();
    Decision::Apply(Wanted { definition: Some(definition), sources })
}

/// `count` endpoints of alpha.
pub(crate) fn of_alpha(count: u32) -> Decision {
    wanted(definition(), [("alpha", Source::Show(shown(endpoints(net(1, count)), 1)))])
}

/// What kind of step it is, for tests about order.
pub(crate) fn kinds(steps: &[Step]) -> Vec<&'static str> {
    let kind = |step: &Step| match step {
        Step::CreateImport(_) => "create import",
        Step::UpdateImport { full: false, .. } => "update import",
        Step::UpdateImport { full: true, .. } => "replace import",
        Step::UpdateImportStatus { .. } => "update status",
        Step::CreateService(_) => "create service",
        Step::UpdateService { full: false, .. } => "update service",
        Step::UpdateService { full: true, .. } => "replace service",
        Step::DeleteService(_) => "delete service",
        Step::CreateSlice(_) => "create slice",
        Step::UpdateSlice { .. } => "update slice",
        Step::DeleteSlice(_) => "delete slice",
        Step::RemoveForeignSlices(_) => "remove foreign slices",
        Step::DeleteImport(_) => "delete import",
        Step::Report(_) => "report",
    };
    steps.iter().map(kind).collect()
}
