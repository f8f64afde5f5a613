// Builds the rights and mounts for the certificates that kube-controllers creates. The certificates are not in a manifest. A
// pod that mounts one waits in ContainerCreating until kube-controllers has created it.
import { AUTHORITY_SECRET, TYPHA_CERTIFICATES } from "../../src/controllers/certificates/names.ts";
import { validating } from "./admission.ts";
import {
  type KubernetesObject,
  type Mount,
  NAMESPACE,
  type PolicyRule,
  type Variable,
  type Volume,
  value,
} from "./objects.ts";

const { bundle, server, client } = TYPHA_CERTIFICATES;
const SECRETS = [AUTHORITY_SECRET, server.secret, client.secret];
const CONFIG_MAPS = [bundle.configMap];

/** Rights in the namespace of kube-controllers. RBAC cannot limit creation by name; `certificateAdmission` does that. */
export const CERTIFICATE_RBAC_RULES: readonly PolicyRule[] = [
  { apiGroups: [""], resources: ["secrets", "configmaps"], verbs: ["create"] },
  { apiGroups: [""], resources: ["secrets"], resourceNames: SECRETS, verbs: ["get", "update"] },
  { apiGroups: [""], resources: ["configmaps"], resourceNames: CONFIG_MAPS, verbs: ["get", "update"] },
];

/**
 * Without this policy, the right to create Secrets in kube-system would give access to the credentials of a node: a Secret of
 * type bootstrap.kubernetes.io/token allows its owner to join the cluster.
 */
export function certificateAdmission(): readonly KubernetesObject[] {
  const names = (list: readonly string[]): string => `[${list.map((name) => `'${name}'`).join(", ")}]`;
  const isSecret = "request.resource.resource == 'secrets'";
  const account = `system:serviceaccount:${NAMESPACE}:calico-kube-controllers`;
  return validating({
    name: "calico-certificates",
    resources: ["secrets", "configmaps"],
    apiGroups: [""],
    operations: ["CREATE"],
    matchConditions: [{ name: "by-kube-controllers", expression: `request.userInfo.username == '${account}'` }],
    validations: [
      {
        expression:
          `${isSecret} ? object.metadata.name in ${names(SECRETS)} && object.type == 'kubernetes.io/tls' ` +
          `: object.metadata.name in ${names(CONFIG_MAPS)}`,
        message: "calico-kube-controllers creates only the Secrets and ConfigMaps of certificates",
        reason: "Forbidden",
      },
    ],
  });
}

/** Environment, mounts and volumes for one side of the connections to Typha. */
interface TlsSide {
  readonly env: readonly Variable[];
  readonly volumeMounts: readonly Mount[];
  readonly volumes: readonly Volume[];
}

const BUNDLE_FILE = `/${bundle.configMap}/${bundle.key}`;

function side(secret: string, defaultMode: number, env: readonly Variable[]): TlsSide {
  const mount = (name: string): Mount => ({ name, mountPath: `/${name}`, readOnly: true });
  return {
    env,
    volumeMounts: [mount(secret), mount(bundle.configMap)],
    volumes: [
      { name: secret, secret: { secretName: secret, defaultMode } },
      { name: bundle.configMap, configMap: { name: bundle.configMap } },
    ],
  };
}

/** Typha does not run as root; its group may read the files. */
export const TYPHA_SERVER: TlsSide = side(server.secret, 0o440, [
  value("TYPHA_SERVERCERTFILE", `/${server.secret}/tls.crt`),
  value("TYPHA_SERVERKEYFILE", `/${server.secret}/tls.key`),
  value("TYPHA_CAFILE", BUNDLE_FILE),
  value("TYPHA_CLIENTCN", client.commonName),
]);

/** Felix, the BGP service, the tunnel allocator and the status reporter all read these variables. */
export const TYPHA_CLIENT: TlsSide = side(client.secret, 0o400, [
  value("FELIX_TYPHACERTFILE", `/${client.secret}/tls.crt`),
  value("FELIX_TYPHAKEYFILE", `/${client.secret}/tls.key`),
  value("FELIX_TYPHACAFILE", BUNDLE_FILE),
  value("FELIX_TYPHACN", server.commonName),
]);
