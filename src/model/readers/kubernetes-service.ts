// Reads Kubernetes Services.
import { JsonReader } from "../../lib/encoding/json-reader.ts";
import { fieldReader, type OnUnreadable } from "./unreadable.ts";

/** Addresses are texts: `None` is the cluster IP of a headless service. */
export interface Service {
  readonly namespace: string;
  readonly name: string;
  readonly type: string;
  readonly clusterIps: readonly string[];
  readonly externalIps: readonly string[];
  /** The address that the user requested from the load balancer. */
  readonly loadBalancerIp: string;
  /** The addresses that the load balancer assigned. */
  readonly loadBalancerIngressIps: readonly string[];
  readonly ports: readonly ServicePort[];
  readonly externalTrafficPolicy: string;
  readonly ipFamilies: readonly string[];
}
interface ServicePort {
  readonly protocol: string;
  readonly port: number;
  readonly nodePort: number;
}

/** @param json the object of the Kubernetes API, or the resource derived from it */
export function readService(json: unknown, onUnreadable: OnUnreadable): Service {
  const read = fieldReader(onUnreadable);
  const object = read(() => new JsonReader(json), undefined);
  const metadata = read(() => object?.object("metadata"), undefined);
  const spec = read(() => object?.object("spec"), undefined);
  const text = (name: string) => read(() => spec?.text(name), undefined) ?? "";
  const texts = (name: string) => read(() => spec?.texts(name), undefined) ?? [];
  const [clusterIps, clusterIp] = [texts("clusterIPs"), text("clusterIP")];
  return {
    namespace: read(() => metadata?.text("namespace"), undefined) ?? "",
    name: read(() => metadata?.text("name"), undefined) ?? "",
    type: text("type"),
    clusterIps: clusterIps.length > 0 || clusterIp === "" ? clusterIps : [clusterIp],
    externalIps: texts("externalIPs"),
    loadBalancerIp: text("loadBalancerIP"),
    loadBalancerIngressIps: read(() => ingressIn(object), []),
    ports: read(() => spec?.objects("ports").map(portOf), undefined) ?? [],
    externalTrafficPolicy: text("externalTrafficPolicy"),
    ipFamilies: texts("ipFamilies"),
  };
}

function ingressIn(object: JsonReader | undefined): readonly string[] {
  const ingress = object?.object("status")?.object("loadBalancer")?.objects("ingress") ?? [];
  return ingress.flatMap((entry) => entry.filled("ip") ?? []);
}

const portOf = (port: JsonReader): ServicePort => ({
  protocol: port.text("protocol") ?? "",
  port: port.number("port") ?? 0,
  nodePort: port.number("nodePort") ?? 0,
});
