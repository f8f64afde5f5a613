// Reads pool fields of the first Calico releases: custom resources had `ipip: {enabled, mode}` and `nat-outgoing`
// instead of `ipipMode` and `natOutgoing`. calico-ts never writes them.

type Fields = Readonly<Record<string, unknown>>;

export function readLegacyPoolFields(spec: Fields): Fields {
  const { ipip, "nat-outgoing": natOutgoing, ...rest } = spec;
  const modern = typeof ipip === "object" && ipip !== null ? { ...rest, ipipMode: modeOf(ipip as Fields) } : rest;
  return natOutgoing === true ? { ...modern, natOutgoing: true } : modern;
}

function modeOf(ipip: Fields): "Never" | "Always" | "CrossSubnet" {
  if (ipip["enabled"] !== true) return "Never";
  return ipip["mode"] === "cross-subnet" ? "CrossSubnet" : "Always";
}
