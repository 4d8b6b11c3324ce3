//! Ports, when they are exported and when they change.

use super::*;

/// What the importing cluster has of a Service: ports of the ServiceImport, of the derived Service and of its slices.
#[derive(Debug, PartialEq, Eq)]
struct Ports {
    import: BTreeSet<String>,
    derived: BTreeSet<String>,
    slices: BTreeSet<String>,
}

impl Ports {
    fn new(service: &[&str], slices: &[&str]) -> Self {
        Self { import: set(service), derived: set(service), slices: set(slices) }
    }
}

fn text(name: Option<&str>, number: i32, protocol: Option<&str>) -> String {
    format!("{} {number}/{}", name.unwrap_or_default(), protocol.unwrap_or("TCP"))
}

async fn wait_for_ports(scene: &Scene, name: &str, wanted: &Ports) -> Result<()> {
    let derived = scene.derived(name)?;
    wait_for(&format!("the ports of {name}"), async || {
        let import = scene.west::<ServiceImport>().get(name).await?.spec.context("a spec")?;
        let service = scene.west::<Service>().get(&derived).await?.spec.context("a spec")?;
        let slices = slices(&scene.west, &scene.ns, name).await?;
        let slice_ports = slices.iter().flat_map(|slice| slice.ports.iter().flatten());
        let is = Ports {
            import: port_texts(&import.ports, |port| {
                text(port.name.as_deref(), port.port, port.protocol.as_deref())
            }),
            derived: port_texts(service.ports.iter().flatten(), |port| {
                text(port.name.as_deref(), port.port, port.protocol.as_deref())
            }),
            slices: port_texts(slice_ports, |port| {
                text(port.name.as_deref(), port.port.unwrap_or_default(), port.protocol.as_deref())
            }),
        };
        expect(is, wanted)
    })
    .await
}

async fn change(scene: &Scene, name: &str, service: Value, slice: Value) -> Result<()> {
    merge(&scene.east::<Service>(), name, json!({ "spec": { "ports": service } })).await?;
    merge(&scene.east::<EndpointSlice>(), &format!("{name}-a"), json!({ "ports": slice })).await
}

async fn export(scene: &Scene, name: &str, service: Value, slice: Value) -> Result<()> {
    let endpoints = json!([{ "addresses": ["10.0.0.1"] }]);
    let spec = json!({ "ports": service });
    create_json::<Service>(&scene.east(), json!({ "metadata": { "name": name }, "spec": spec })).await?;
    create_json::<EndpointSlice>(&scene.east(), slice_json(&format!("{name}-a"), name, slice, endpoints))
        .await?;
    create(&scene.east(), &service_export(name)).await
}

/// O07, O08, O10: ports of one number and two protocols, renamed and renumbered ports, target ports of their own.
#[tokio::test]
async fn the_ports_of_an_import_follow_those_of_the_service() -> Result<()> {
    let scene = Scene::start("ports").await?;
    let tcp = |number: u16| json!({ "name": "dns-tcp", "port": number, "protocol": "TCP" });
    let udp = |number: u16| json!({ "name": "dns-udp", "port": number, "protocol": "UDP" });
    export(&scene, "dns", json!([tcp(53)]), json!([tcp(1053)])).await?;
    wait_for_ports(&scene, "dns", &Ports::new(&["dns-tcp 53/TCP"], &["dns-tcp 1053/TCP"])).await?;
    let both = Ports::new(&["dns-tcp 53/TCP", "dns-udp 53/UDP"], &["dns-tcp 1053/TCP", "dns-udp 1053/UDP"]);
    change(&scene, "dns", json!([tcp(53), udp(53)]), json!([tcp(1053), udp(1053)])).await?;
    wait_for_ports(&scene, "dns", &both).await?;
    change(&scene, "dns", json!([udp(5353), tcp(5353)]), json!([udp(5353), tcp(5353)])).await?;
    let moved =
        Ports::new(&["dns-tcp 5353/TCP", "dns-udp 5353/UDP"], &["dns-tcp 5353/TCP", "dns-udp 5353/UDP"]);
    wait_for_ports(&scene, "dns", &moved).await?;
    export(&scene, "dns2", json!([tcp(53), udp(53)]), json!([tcp(1053), udp(1053)])).await?;
    wait_for_ports(&scene, "dns2", &both).await?;
    // The two names swap.
    let swapped = |number: u16| json!([{ "name": "dns-udp", "port": number, "protocol": "TCP" }, { "name": "dns-tcp", "port": number, "protocol": "UDP" }]);
    change(&scene, "dns2", swapped(53), swapped(1053)).await?;
    let swapped =
        Ports::new(&["dns-udp 53/TCP", "dns-tcp 53/UDP"], &["dns-udp 1053/TCP", "dns-tcp 1053/UDP"]);
    wait_for_ports(&scene, "dns2", &swapped).await?;

    let named = |name: &str, number: u16| json!({ "name": name, "port": number, "protocol": "TCP" });
    export(&scene, "cart", json!([named("http", 80)]), json!([named("http", 8080)])).await?;
    wait_for_ports(&scene, "cart", &Ports::new(&["http 80/TCP"], &["http 8080/TCP"])).await?;
    change(&scene, "cart", json!([named("web", 80)]), json!([named("web", 8080)])).await?;
    wait_for_ports(&scene, "cart", &Ports::new(&["web 80/TCP"], &["web 8080/TCP"])).await?;
    change(&scene, "cart", json!([named("web", 8080)]), json!([named("web", 8080)])).await?;
    wait_for_ports(&scene, "cart", &Ports::new(&["web 8080/TCP"], &["web 8080/TCP"])).await?;
    let two = json!([named("web", 8080), named("adm", 9000)]);
    change(&scene, "cart", two.clone(), two).await?;
    let two = ["web 8080/TCP", "adm 9000/TCP"];
    wait_for_ports(&scene, "cart", &Ports::new(&two, &two)).await?;
    change(&scene, "cart", json!([{ "port": 80 }]), json!([{ "name": "", "port": 8080 }])).await?;
    wait_for_ports(&scene, "cart", &Ports::new(&[" 80/TCP"], &[" 8080/TCP"])).await?;
    wait_for_conditions(&scene.east(), "cart", &ACCEPTED).await
}
