// Defines the kind FelixConfiguration: settings of Felix for the cluster (`default`), one node (`node.<name>`), or the
// nodes that a selector matches. Its fields are derived from the declarations in felix-settings/; this file adds the
// rules across fields.
import type * as z from "zod/mini";
import { felixFieldShape } from "../felix-settings/index.ts";
import { isInterface } from "../validation/formats.ts";
import { parsePort } from "../validation/numbers.ts";
import * as fields from "./fields.ts";
import { defineKind, type ResourceFor, type RuleContext, type Stored } from "./kind.ts";

const { field, flag, isDuration, pointer, selector, text } = fields;

const spec = fields.object({
  nodeSelector: pointer(selector(1024)),
  // Settings of former versions of Calico, which no program reads.
  iptablesLockFilePath: field(text()),
  iptablesLockTimeout: pointer(fields.duration()),
  bpfKubeProxyEndpointSlicesEnabled: pointer(flag()),
  ...felixFieldShape(fields),
});
export type FelixConfigurationResource = ResourceFor<"FelixConfiguration", typeof spec>;
type Spec = Stored<typeof spec>;

export default defineKind({
  kind: "FelixConfiguration",
  description: "Settings of Felix for the cluster (name: default), one node (name: node.<name>), or selected nodes.",
  spec,
  prepare: (config) => {
    // The old setting takes precedence over the two settings that replaced it.
    const old = config["bpfConnectTimeLoadBalancingEnabled"];
    if (typeof old !== "boolean") return;
    config["bpfConnectTimeLoadBalancing"] = old ? "Enabled" : "Disabled";
    config["bpfHostNetworkedNATWithoutCTLB"] = "Disabled";
  },
  rules: (config, context) => {
    const { metadata, report } = context;
    if (config.nodeSelector !== undefined && (metadata.name === "default" || metadata.name.startsWith("node.")))
      report(
        ["nodeSelector"],
        config.nodeSelector,
        `is not possible in ${metadata.name}, whose name determines the nodes`,
      );
    for (const [i, override] of (config.healthTimeoutOverrides ?? []).entries())
      if (override.timeout.startsWith("-"))
        report(["healthTimeoutOverrides", i, "timeout"], override.timeout, "must not be negative");
    for (const name of Object.keys(config.bpfLogFilters ?? {}))
      if (name === "*" || !isInterface(name)) report(["bpfLogFilters"], name, "want interface names");
    checkRouteTables(config, context);
    checkPorts(config, context);
    if (context.mode !== "stored") checkNewValues(config, context);
  },
});

/** Ports must be numbers here; names are not allowed. */
function checkPorts(config: Spec, { report }: RuleContext): void {
  const check = (path: readonly (string | number)[], value: string | number | undefined) => {
    const port = value === undefined ? undefined : parsePort(value);
    if (port !== undefined && ("name" in port || port.min < 1))
      report(path, value, "want a port from 1 to 65535 or a range such as 1024:2047");
  };
  check(["natPortRange"], config.natPortRange);
  check(["bpfPSNATPorts"], config.bpfPSNATPorts);
  for (const [i, range] of (config.kubeNodePortRanges ?? []).entries()) check(["kubeNodePortRanges", i], range);
}

const isTime = (name: string): boolean => isDuration((spec.shape as Record<string, z.ZodMiniType>)[name]);

/** Stored values of older versions are not checked. */
function checkNewValues(config: Spec, { report }: RuleContext): void {
  const checkTime = (path: readonly string[], value: unknown) => {
    if (typeof value === "string" && value.startsWith("-")) report(path, value, "must not be negative");
  };
  for (const [name, value] of Object.entries(config)) if (isTime(name)) checkTime([name], value);
  for (const [name, value] of Object.entries(config.bpfConntrackTimeouts ?? {}))
    checkTime(["bpfConntrackTimeouts", name], value);
  const features = config.featureDetectOverride;
  if (features !== undefined && !/^([\w-]+=(true|false|)(,|$))*$/.test(features))
    report(["featureDetectOverride"], features, "want name=true or name=false, joined by commas");
  const gates = config.featureGates;
  if (gates !== undefined && !/^([\w-]+=[^=]+,)*([\w-]+=[^=]+)?$/.test(gates))
    report(["featureGates"], gates, "want name=value pairs, joined by commas");
}

function checkRouteTables(config: Spec, { report }: RuleContext): void {
  const single = config.routeTableRange;
  if (single !== undefined && !(single.min >= 1 && single.max >= single.min && single.max <= 250))
    report(["routeTableRange"], single, "want min and max within 1 to 250");
  if (single !== undefined && config.routeTableRanges !== undefined)
    report(["routeTableRange"], single, "cannot be combined with routeTableRanges");
  let total = 0;
  for (const [i, range] of (config.routeTableRanges ?? []).entries()) {
    if (range.min < 1) report(["routeTableRanges", i, "min"], range.min, "want 1 or more");
    if (range.min > range.max)
      report(["routeTableRanges", i, "max"], range.max, `want at least the value of min, ${range.min}`);
    total += Math.max(0, range.max - range.min + 1);
  }
  if (total > 65535) report(["routeTableRanges"], undefined, `contain ${total} tables, want at most 65535`);
}
