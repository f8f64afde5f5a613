import { expect, test } from "bun:test";
import { execFileSync } from "node:child_process";
import { readFileSync } from "node:fs";
import { join } from "node:path";
import { loadAll } from "js-yaml";
import { renderConfig } from "../src/cni/install/install-config.ts";
import { resolveConfig } from "../src/typha/config.ts";
import { BGP_PREFIXES, NODE_PREFIXES, typhaSettings } from "../src/typha/index.ts";
import { checkTlsSettings } from "../src/typha/tls.ts";
import { installations } from "./manifests/installations.ts";
import type { Container, KubernetesObject, PolicyRule, Probe, Variable, Volume } from "./manifests/objects.ts";
import { staleManifests } from "./manifests.ts";

const all = await installations();
const NAMES = ["calico.yaml", "calico-typha.yaml", "calico-vxlan.yaml", "calico-etcd.yaml"];

interface PodSpec {
  readonly containers: readonly Container[];
  readonly initContainers?: readonly Container[];
  readonly volumes?: readonly Volume[];
  readonly hostNetwork?: boolean;
  readonly priorityClassName: string;
  readonly terminationGracePeriodSeconds?: number;
  readonly serviceAccountName?: string;
  readonly tolerations: readonly object[];
  readonly securityContext?: { readonly fsGroup?: number; readonly seccompProfile?: object };
}
const containersOf = ({ initContainers = [], containers }: PodSpec): readonly Container[] => [
  ...initContainers,
  ...containers,
];
/** Deletes interfaces, routes, rules and sets, and files of any owner. */
const UNINSTALL_CAPABILITIES = ["NET_ADMIN", "NET_RAW", "DAC_OVERRIDE"];
const objectsOf = (file: string): readonly KubernetesObject[] => all[file]?.objects ?? [];
const find = (file: string, kind: string, name: string) =>
  objectsOf(file).find((object) => object.kind === kind && object.metadata.name === name);
const podOf = (object: KubernetesObject | undefined): PodSpec =>
  (object!["spec"] as { template: { spec: PodSpec } }).template.spec;
const node = (file: string) => podOf(find(file, "DaemonSet", "calico-node"));
const agent = (file: string) => node(file).containers[0]!;
const controllers = (file: string) => podOf(find(file, "Deployment", "calico-kube-controllers"));
const environment = (container: Container): Record<string, string | undefined> =>
  Object.fromEntries(
    (container.env ?? []).map(({ name, value, valueFrom }: Variable) => [name, value ?? from(valueFrom)]),
  );
function from(source: Variable["valueFrom"]): string {
  if (source === undefined) return "";
  return "fieldRef" in source ? `field ${source.fieldRef.fieldPath}` : `config ${source.configMapKeyRef.key}`;
}
const config = (file: string) => find(file, "ConfigMap", "calico-config")?.["data"] as Record<string, string>;
const command = (probe: Probe | undefined) => probe?.exec?.command.join(" ");
const kinds = (file: string) => new Set(objectsOf(file).map(({ kind }) => kind));

test("the manifests are up to date with the schemas and scripts/manifests", async () => {
  expect(await staleManifests()).toEqual([]);
});

/** Whether the file contains the object, or allows kube-controllers to create it and enables that. */
function isProvided(file: string, kind: "Secret" | "ConfigMap", name: string): boolean {
  if (find(file, kind, name) !== undefined) return true;
  const rules = (find(file, "Role", "calico-kube-controllers")?.["rules"] ?? []) as readonly PolicyRule[];
  const isNamed = rules.some(
    ({ resources, resourceNames, verbs }) =>
      resources?.includes(`${kind.toLowerCase()}s`) && resourceNames?.includes(name) && verbs.includes("update"),
  );
  return isNamed && environment(controllers(file).containers[0]!)["CALICO_CERTIFICATES"] === "typha";
}

test("every name a pod refers to is in the same file, or created by kube-controllers", () => {
  for (const file of NAMES) {
    const pods = objectsOf(file).filter(({ kind }) => ["DaemonSet", "Deployment"].includes(kind));
    for (const object of pods) {
      const pod = podOf(object);
      const containers = [...(pod.initContainers ?? []), ...pod.containers];
      const volumes = (pod.volumes ?? []).map(({ name }) => name);
      const mounted = containers.flatMap(({ volumeMounts = [] }) => volumeMounts.map(({ name }) => name));
      expect([...new Set(mounted)].sort()).toEqual([...volumes].sort());
      expect(find(file, "ServiceAccount", pod.serviceAccountName ?? "")).toBeDefined();
      for (const { env = [] } of containers)
        for (const { valueFrom } of env)
          if (valueFrom !== undefined && "configMapKeyRef" in valueFrom)
            expect(config(file)).toHaveProperty(valueFrom.configMapKeyRef.key);
      for (const { secret, configMap } of pod.volumes ?? []) {
        if (secret !== undefined) expect(isProvided(file, "Secret", secret.secretName)).toBe(true);
        if (configMap !== undefined) expect(isProvided(file, "ConfigMap", configMap.name)).toBe(true);
      }
    }
  }
});

test("TC-I01 calico.yaml: definitions, accounts, agent and controllers; BGP, IPIP, the Kubernetes API as datastore", () => {
  expect([...kinds("calico.yaml")]).toEqual([
    "CustomResourceDefinition",
    "ValidatingAdmissionPolicy",
    "ValidatingAdmissionPolicyBinding",
    "ServiceAccount",
    "ClusterRole",
    "ClusterRoleBinding",
    "Role",
    "RoleBinding",
    "ConfigMap",
    "DaemonSet",
    "PodDisruptionBudget",
    "Deployment",
  ]);
  expect(config("calico.yaml")).toMatchObject({ calico_backend: "bird", typha_service_name: "none", veth_mtu: "0" });
  expect(environment(agent("calico.yaml"))).toEqual({
    DATASTORE_TYPE: "kubernetes",
    WAIT_FOR_DATASTORE: "true",
    NODENAME: "field spec.nodeName",
    CALICO_NETWORKING_BACKEND: "config calico_backend",
    CLUSTER_TYPE: "k8s,bgp",
    IP: "autodetect",
    CALICO_IPV4POOL_IPIP: "Always",
    CALICO_IPV4POOL_VXLAN: "Never",
    CALICO_IPV6POOL_VXLAN: "Never",
    FELIX_IPINIPMTU: "config veth_mtu",
    FELIX_VXLANMTU: "config veth_mtu",
    FELIX_WIREGUARDMTU: "config veth_mtu",
    CALICO_DISABLE_FILE_LOGGING: "true",
    FELIX_DEFAULTENDPOINTTOHOSTACTION: "ACCEPT",
    FELIX_IPV6SUPPORT: "true",
    CALICO_IPV6POOL_CIDR: "none",
    FELIX_HEALTHENABLED: "true",
  });
  const pod = node("calico.yaml");
  expect(pod).toMatchObject({
    hostNetwork: true,
    priorityClassName: "system-node-critical",
    terminationGracePeriodSeconds: 0,
    serviceAccountName: "calico-node",
  });
  expect(pod.initContainers?.map(({ name, command: words }) => [name, words])).toEqual([
    ["upgrade-ipam", ["/opt/cni/bin/calico-ipam", "-upgrade"]],
    ["install-cni", ["/opt/cni/bin/install"]],
  ]);
  // The network of a node starts regardless of its taints.
  for (const effect of ["NoSchedule", "NoExecute"])
    expect(pod.tolerations).toContainEqual({ effect, operator: "Exists" });
  expect(environment(controllers("calico.yaml").containers[0]!)).toMatchObject({
    DATASTORE_TYPE: "kubernetes",
    ENABLED_CONTROLLERS: "node,loadbalancer",
  });
  expect(find("calico.yaml", "Deployment", "calico-kube-controllers")).toMatchObject({
    spec: { replicas: 1, strategy: { type: "Recreate" } },
  });
});

test("TC-I02 calico-etcd.yaml: no definitions, etcd's credentials from a Secret, six controllers on the host's network", () => {
  const file = "calico-etcd.yaml";
  expect(kinds(file)).not.toContain("CustomResourceDefinition");
  expect(kinds(file)).toContain("Secret");
  expect(Object.keys(config(file))).toEqual([
    "etcd_endpoints",
    "etcd_ca",
    "etcd_cert",
    "etcd_key",
    "calico_backend",
    "veth_mtu",
    "cni_network_config",
  ]);
  expect(environment(agent(file))).toMatchObject({
    DATASTORE_TYPE: "etcdv3",
    ETCD_ENDPOINTS: "config etcd_endpoints",
    ETCD_CA_CERT_FILE: "config etcd_ca",
    ETCD_KEY_FILE: "config etcd_key",
    ETCD_CERT_FILE: "config etcd_cert",
    CALICO_K8S_NODE_REF: "field spec.nodeName",
  });
  expect(node(file).initContainers?.map(({ name }) => name)).toEqual(["install-cni"]);
  expect(controllers(file).hostNetwork).toBe(true);
  expect(environment(controllers(file).containers[0]!)["ENABLED_CONTROLLERS"]).toBe(
    "policy,namespace,serviceaccount,workloadendpoint,node,loadbalancer",
  );
  for (const container of [agent(file), node(file).initContainers![0]!, controllers(file).containers[0]!])
    expect(container.volumeMounts).toContainEqual({ name: "etcd-certs", mountPath: "/calico-secrets", readOnly: true });
});

test("TC-I03 calico-typha.yaml: Typha with a service, nodes that use it, and a grace period to disconnect clients", () => {
  const file = "calico-typha.yaml";
  const typha = podOf(find(file, "Deployment", "calico-typha"));
  expect(find(file, "Deployment", "calico-typha")).toMatchObject({
    spec: { replicas: 1, strategy: { rollingUpdate: { maxSurge: "100%", maxUnavailable: 1 } } },
  });
  expect(typha).toMatchObject({
    hostNetwork: true,
    terminationGracePeriodSeconds: 300,
    serviceAccountName: "calico-typha",
  });
  expect(environment(typha.containers[0]!)).toMatchObject({
    TYPHA_DATASTORETYPE: "kubernetes",
    TYPHA_HEALTHENABLED: "true",
    TYPHA_CONNECTIONREBALANCINGMODE: "kubernetes",
  });
  expect(find(file, "PodDisruptionBudget", "calico-typha")).toBeDefined();
  expect(config(file)["typha_service_name"]).toBe("calico-typha");
  expect(environment(agent(file))["FELIX_TYPHAK8SSERVICENAME"]).toBe("config typha_service_name");
});

test("calico-typha.yaml: Typha requires client certificates, and calico-node sends one and verifies Typha's", () => {
  const file = "calico-typha.yaml";
  const typha = podOf(find(file, "Deployment", "calico-typha"));
  const { config: typhaConfig } = resolveConfig(environment(typha.containers[0]!));
  const server = checkTlsSettings(
    {
      keyFile: typhaConfig.ServerKeyFile,
      certFile: typhaConfig.ServerCertFile,
      caFile: typhaConfig.CAFile,
      commonName: typhaConfig.ClientCN,
    },
    "client",
  );
  expect(server).toEqual({
    keyFile: "/typha-certs/tls.key",
    certFile: "/typha-certs/tls.crt",
    caFile: "/typha-ca/caBundle",
    commonName: "typha-client",
  });
  for (const prefixes of [["FELIX_"], BGP_PREFIXES, NODE_PREFIXES])
    expect(typhaSettings(environment(agent(file)), prefixes)?.tls).toEqual({
      keyFile: "/node-certs/tls.key",
      certFile: "/node-certs/tls.crt",
      caFile: "/typha-ca/caBundle",
      commonName: "typha-server",
    });
  for (const [pod, secretName] of [
    [typha, "typha-certs"],
    [node(file), "node-certs"],
  ] as const) {
    const volumes = [
      { name: secretName, secret: expect.objectContaining({ secretName }) },
      { name: "typha-ca", configMap: { name: "typha-ca" } },
    ];
    for (const volume of volumes) {
      expect(pod.volumes).toContainEqual(volume);
      const mount = { name: volume.name, mountPath: `/${volume.name}`, readOnly: true };
      expect(pod.containers[0]?.volumeMounts).toContainEqual(mount);
    }
  }
});

test("calico-typha.yaml: kube-controllers creates the certificates before any node has a network", () => {
  const pod = controllers("calico-typha.yaml");
  expect(pod.hostNetwork).toBe(true);
  for (const key of ["node.kubernetes.io/not-ready", "node.kubernetes.io/network-unavailable"])
    expect(pod.tolerations).toContainEqual({ key, effect: "NoSchedule", operator: "Exists" });
  // It mounts nothing that it has to create itself, and does not connect to Typha.
  expect((pod.volumes ?? []).map(({ name }) => name)).toEqual(["status"]);
  expect(Object.keys(environment(pod.containers[0]!)).filter((name) => name.includes("TYPHA"))).toEqual([]);
});

test("only calico-typha.yaml lets kube-controllers write Secrets, and only the named ones", () => {
  for (const file of NAMES) {
    const everywhere = (find(file, "ClusterRole", "calico-kube-controllers")?.["rules"] ?? []) as readonly PolicyRule[];
    const local = (find(file, "Role", "calico-kube-controllers")?.["rules"] ?? []) as readonly PolicyRule[];
    const aboutSecrets = (rules: readonly PolicyRule[]) =>
      rules.filter(({ resources }) => resources?.includes("secrets"));
    expect(aboutSecrets(everywhere)).toEqual([]);
    expect(aboutSecrets(local)).toEqual(
      file === "calico-typha.yaml"
        ? [
            { apiGroups: [""], resources: ["secrets", "configmaps"], verbs: ["create"] },
            {
              apiGroups: [""],
              resources: ["secrets"],
              resourceNames: ["calico-ca-private", "typha-certs", "node-certs"],
              verbs: ["get", "update"],
            },
          ]
        : [],
    );
    expect(find(file, "ValidatingAdmissionPolicy", "calico-certificates") !== undefined).toBe(
      file === "calico-typha.yaml",
    );
  }
});

test("TC-I06 calico-vxlan.yaml: VXLAN between subnets, no BIRD and no probe of it", () => {
  const file = "calico-vxlan.yaml";
  expect(config(file)["calico_backend"]).toBe("vxlan");
  expect(environment(agent(file))).toMatchObject({
    CALICO_IPV4POOL_IPIP: "Never",
    CALICO_IPV4POOL_VXLAN: "CrossSubnet",
  });
  expect(command(agent(file).livenessProbe)).toBe("/usr/bin/calico-node -felix-live");
  expect(command(agent(file).readinessProbe)).toBe("/usr/bin/calico-node -felix-ready");
});

test("TC-I12 the CNI configuration of the ConfigMap is JSON after its placeholders are replaced", () => {
  const facts = { kubeconfig: "/etc/cni/net.d/calico-kubeconfig", serviceAccountToken: "t", tlsFiles: [] };
  for (const file of NAMES) {
    const template = config(file)["cni_network_config"] ?? "";
    const env = { KUBERNETES_NODE_NAME: "n1", CNI_MTU: "0", ETCD_ENDPOINTS: "http://e:2379" };
    const text = renderConfig(template, env, facts);
    expect(text).not.toMatch(/__[A-Z_]+__/);
    expect(JSON.parse(text)).toMatchObject({
      name: "k8s-pod-network",
      cniVersion: "0.3.1",
      plugins: [
        {
          type: "calico",
          nodename: "n1",
          mtu: 0,
          ipam: { type: "calico-ipam" },
          policy: { type: "k8s" },
          kubernetes: { kubeconfig: "/etc/cni/net.d/calico-kubeconfig" },
          ...(file === "calico-etcd.yaml" ? { etcd_endpoints: "http://e:2379" } : { datastore_type: "kubernetes" }),
        },
        { type: "portmap", snat: true, capabilities: { portMappings: true } },
      ],
    });
    expect(environment(node(file).initContainers!.at(-1)!)).toMatchObject({
      CNI_CONF_NAME: "10-calico.conflist",
      CNI_NETWORK_CONFIG: "config cni_network_config",
      CNI_MTU: "config veth_mtu",
      SLEEP: "false",
    });
  }
});

test("TC-I13 probes call the health check of each program", () => {
  const { livenessProbe, readinessProbe, lifecycle } = agent("calico.yaml");
  expect(command(livenessProbe)).toBe("/usr/bin/calico-node -felix-live -bird-live");
  expect(livenessProbe).toMatchObject({
    initialDelaySeconds: 10,
    periodSeconds: 10,
    failureThreshold: 6,
    timeoutSeconds: 10,
  });
  expect(command(readinessProbe)).toBe("/usr/bin/calico-node -felix-ready -bird-ready");
  expect(lifecycle).toEqual({ preStop: { exec: { command: ["/usr/bin/calico-node", "-shutdown"] } } });
  const controller = controllers("calico.yaml").containers[0]!;
  expect(command(controller.livenessProbe)).toBe("/usr/bin/check-status -l");
  expect(command(controller.readinessProbe)).toBe("/usr/bin/check-status -r");
  const typha = podOf(find("calico-typha.yaml", "Deployment", "calico-typha")).containers[0]!;
  expect(typha.livenessProbe).toMatchObject({
    httpGet: { path: "/liveness", port: 9098, host: "localhost" },
    periodSeconds: 30,
  });
  expect(typha.readinessProbe).toMatchObject({ httpGet: { path: "/readiness", port: 9098 }, periodSeconds: 10 });
});

test("TC-I14 ports are those of Calico, which firewalls allow", async () => {
  const typha = podOf(find("calico-typha.yaml", "Deployment", "calico-typha")).containers[0]!;
  expect(typha.ports).toEqual([{ containerPort: 5473, name: "calico-typha", protocol: "TCP" }]);
  expect(find("calico-typha.yaml", "Service", "calico-typha")).toMatchObject({ spec: { ports: [{ port: 5473 }] } });
  expect(controllers("calico.yaml").containers[0]!.ports).toEqual([
    { containerPort: 9094, name: "metrics", protocol: "TCP" },
  ]);
  // Ports that are not in the manifests are the defaults of the programs.
  const { ConfigEngine } = await import("../src/felix/config/index.ts");
  const felix = new ConfigEngine({ exists: () => true, findExecutable: (name) => name }, { hostname: "n" });
  felix.update({});
  expect(felix.config).toMatchObject({
    HealthPort: 9099,
    PrometheusMetricsPort: 9091,
    VXLANPort: 4789,
    WireguardListeningPort: 51820,
    WireguardListeningPortV6: 51821,
  });
  expect(resolveConfig({}).config).toMatchObject({ HealthPort: 9098, PrometheusMetricsPort: 9093 });
});

test("no image name can be registered by others, and no node pulls an image", () => {
  for (const [file, { objects }] of Object.entries(all))
    for (const object of objects.filter(({ kind }) => ["DaemonSet", "Deployment"].includes(kind)))
      for (const container of containersOf(podOf(object)))
        expect({ file, name: container.name, image: container.image, pull: container.imagePullPolicy }).toEqual({
          file,
          name: container.name,
          image: expect.stringMatching(/^localhost\/calico-ts\/calico:v[0-9.]+$/),
          pull: "Never",
        });
});

test("the documented command puts a registry and a digest into every container of a manifest", () => {
  const page = readFileSync(join(import.meta.dir, "../docs/kubernetes.md"), "utf8");
  const [, script = ""] = /^# sed '(.+)' manifests\/calico\.yaml > /m.exec(page) ?? [];
  expect(script).toContain("@sha256:");
  const image = /localhost\/\S+?\|(\S+?)\|/.exec(script)?.[1];
  const digest = "a".repeat(64);
  for (const [file, { objects }] of Object.entries(all)) {
    const given = execFileSync("sed", [script.replace("DIGEST", digest), join(import.meta.dir, "../manifests", file)]);
    const written = loadAll(given.toString()) as KubernetesObject[];
    const workloads = written.filter(({ kind }) => ["DaemonSet", "Deployment"].includes(kind));
    expect(workloads.length).toBe(objects.filter(({ kind }) => ["DaemonSet", "Deployment"].includes(kind)).length);
    for (const container of workloads.flatMap((object) => containersOf(podOf(object))))
      expect({ file, image: container.image, pull: container.imagePullPolicy as string }).toEqual({
        file,
        image: image?.replace("DIGEST", digest) ?? "",
        pull: "IfNotPresent",
      });
  }
});

test("every container requests memory and CPU, and its pod has the runtime's seccomp profile", () => {
  for (const [file, { objects }] of Object.entries(all))
    for (const object of objects.filter(({ kind }) => ["DaemonSet", "Deployment"].includes(kind))) {
      const pod = podOf(object);
      expect({ file, name: object.metadata.name, context: pod.securityContext }).toMatchObject({
        file,
        name: object.metadata.name,
        context: { seccompProfile: { type: "RuntimeDefault" } },
      });
      for (const { name, resources } of containersOf(pod))
        expect({ file, name, resources }).toEqual({
          file,
          name,
          resources: { requests: { cpu: expect.stringMatching(/^\d+m$/), memory: expect.stringMatching(/^\d+Mi$/) } },
        });
    }
});

test("containers other than the agent are not privileged and have only the capabilities that they use", () => {
  const capabilities: Readonly<Record<string, readonly string[]>> = { uninstall: UNINSTALL_CAPABILITIES };
  for (const [file, { objects }] of Object.entries(all))
    for (const object of objects.filter(({ kind }) => ["DaemonSet", "Deployment"].includes(kind)))
      for (const { name, securityContext } of containersOf(podOf(object)).filter(
        (each) => each.name !== "calico-node",
      )) {
        const add = capabilities[name];
        expect({ file, name, securityContext }).toMatchObject({
          file,
          name,
          securityContext: {
            allowPrivilegeEscalation: false,
            readOnlyRootFilesystem: true,
            capabilities: { drop: ["ALL"], ...(add === undefined ? {} : { add }) },
          },
        });
        expect(securityContext).not.toHaveProperty("privileged");
      }
});

test("only the agent is privileged; all others run as nobody and cannot gain privileges", () => {
  for (const pod of [controllers("calico.yaml"), podOf(find("calico-typha.yaml", "Deployment", "calico-typha"))])
    for (const { securityContext } of pod.containers)
      expect(securityContext).toMatchObject({
        runAsNonRoot: true,
        allowPrivilegeEscalation: false,
        capabilities: { drop: ["ALL"] },
      });
});

test("containers without need for node privileges have none, and can read the Secrets that they mount", () => {
  for (const file of NAMES)
    for (const object of objectsOf(file).filter(({ kind }) => kind === "Deployment")) {
      const pod = podOf(object);
      for (const container of pod.containers) {
        expect(container.securityContext).toMatchObject({
          runAsNonRoot: true,
          allowPrivilegeEscalation: false,
          readOnlyRootFilesystem: true,
          capabilities: { drop: ["ALL"] },
        });
        const { runAsGroup, runAsUser } = container.securityContext as Record<string, number>;
        const hasSecret = (pod.volumes ?? []).some(({ secret }) => secret !== undefined);
        // The files of a Secret belong to root and the group of the pod.
        if (hasSecret) expect([runAsGroup, runAsUser]).toContain(pod.securityContext?.fsGroup as number);
      }
    }
});
