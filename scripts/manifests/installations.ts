// Lists the objects of each installation manifest.
import { CRD_KINDS, customResourceDefinition } from "../../src/model/kinds/crd.ts";
import { admission, policyDefaults } from "./admission.ts";
import { calicoNode, clusterType, type NodeOptions } from "./calico-node.ts";
import { CERTIFICATE_RBAC_RULES, certificateAdmission } from "./certificates.ts";
import { configMap } from "./config-map.ts";
import { ownNode, ownNodeStatus } from "./own-node.ts";
import { kubeControllers } from "./kube-controllers.ts";
import { type KubernetesObject, NAMESPACE } from "./objects.ts";
import {
  account,
  CNI_RULES,
  CONTROLLER_LOCAL_RULES,
  CONTROLLER_RULES,
  ETCD_CNI_RULES,
  ETCD_CONTROLLER_RULES,
  ETCD_NODE_RULES,
  NODE_LOCAL_RULES,
  NODE_RULES,
  tierGetter,
  TYPHA_RULES,
} from "./rbac.ts";
import { typha } from "./typha.ts";
import { uninstall } from "./uninstall.ts";

export interface Installation {
  /** The comment at the beginning of the file. */
  readonly about: string;
  readonly objects: readonly KubernetesObject[];
}

/** By file name. */
export async function installations(): Promise<Readonly<Record<string, Installation>>> {
  const definitions = (await Promise.all(CRD_KINDS.map(customResourceDefinition))) as unknown as KubernetesObject[];
  const withKubernetes = (options: Omit<NodeOptions, "datastore">): readonly KubernetesObject[] => [
    ...definitions,
    ...admission(),
    ...(options.typha ? certificateAdmission() : []),
    ...ownNode(),
    ...account("calico-node", NODE_RULES, NODE_LOCAL_RULES),
    ...account("calico-cni-plugin", CNI_RULES),
    ...account("calico-kube-controllers", CONTROLLER_RULES, [
      ...CONTROLLER_LOCAL_RULES,
      ...(options.typha ? CERTIFICATE_RBAC_RULES : []),
    ]),
    ...tierGetter(),
    ...(options.typha ? account("calico-typha", TYPHA_RULES) : []),
    configMap({
      datastore: "kubernetes",
      backend: options.backend,
      typhaService: options.typha ? "calico-typha" : "none",
    }),
    ...(options.typha ? typha() : []),
    calicoNode({ ...options, datastore: "kubernetes" }),
    ...kubeControllers({
      datastore: "kubernetes",
      typha: options.typha,
      clusterType: `${clusterType(options.backend)}${options.typha ? ",typha" : ""}`,
    }),
  ];
  return {
    "calico.yaml": {
      about: "Everything a cluster needs: BGP between nodes, IPIP, the Kubernetes API as datastore.",
      objects: withKubernetes({ backend: "bird", pool: "ipip", typha: false }),
    },
    "calico-typha.yaml": {
      about:
        "The same with Typha between the nodes and the API server: for more than 50 nodes. Kube-controllers creates its certificates.",
      objects: withKubernetes({ backend: "bird", pool: "ipip", typha: true }),
    },
    "calico-vxlan.yaml": {
      about: "Without BGP: VXLAN between nodes of different subnets, the Kubernetes API as datastore.",
      objects: withKubernetes({ backend: "vxlan", pool: "vxlan", typha: false }),
    },
    "calico-etcd.yaml": {
      about: "With etcd as datastore. Fill in etcd_endpoints below, and the Secret when etcd wants TLS.",
      objects: [
        etcdSecret(),
        ...ownNodeStatus(),
        ...account("calico-node", ETCD_NODE_RULES, NODE_LOCAL_RULES),
        ...account("calico-cni-plugin", ETCD_CNI_RULES),
        ...account("calico-kube-controllers", ETCD_CONTROLLER_RULES, CONTROLLER_LOCAL_RULES),
        configMap({ datastore: "etcdv3", backend: "bird", typhaService: "none" }),
        calicoNode({ datastore: "etcdv3", backend: "bird", pool: "ipip", typha: false }),
        ...kubeControllers({ datastore: "etcdv3", typha: false }),
      ],
    },
    "policy-defaults.yaml": {
      about:
        "Beside the installation, for Kubernetes 1.36 and later: policies made by kubectl get the defaults of calicoctl.",
      objects: policyDefaults(),
    },
    "uninstall.yaml": {
      about:
        "Cleans the nodes. First delete what was installed, then apply this; when its pods are ready, delete it again.",
      objects: uninstall(),
    },
  };
}

function etcdSecret(): KubernetesObject {
  return {
    apiVersion: "v1",
    kind: "Secret",
    type: "Opaque",
    metadata: { name: "calico-etcd-secrets", namespace: NAMESPACE },
    // base64 of the PEM files, with the keys etcd-ca, etcd-cert and etcd-key.
    data: {},
  };
}
