// What each command does and prints. The same for the plugin process and the node-local service.
import { add } from "./attach/add.ts";
import { check } from "./attach/check.ts";
import type { CniContext } from "./context.ts";
import { foreignDataplane } from "./request/dataplane-options.ts";
import { del } from "./attach/del.ts";
import { notAvailable } from "./error.ts";
import { collectGarbage } from "./attach/gc.ts";
import { requireReady } from "./attach/readiness.ts";
import { assignAddresses, releaseAddresses } from "./ipam/pool-addresses.ts";
import { checkNodenameFile } from "./request/node-files.ts";
import { refuseOwnNetns } from "./open-context.ts";
import { renderResult } from "./request/result.ts";
import { versionReply } from "./version.ts";

/** What goes to standard output on success. */
export async function runCommand(context: CniContext): Promise<string> {
  return context.request.program === "calico" ? runCalico(context) : runCalicoIpam(context);
}

async function runCalico(context: CniContext): Promise<string> {
  const { request, conf } = context;
  switch (request.command) {
    case "ADD": {
      checkNodenameFile(conf);
      refuseOwnNetns(context);
      return JSON.stringify(renderResult(await add(context), request.cniVersion));
    }
    case "DEL":
      checkNodenameFile(conf);
      refuseOwnNetns(context);
      await del(context);
      return "";
    case "CHECK":
      await check(context);
      return "OK\n";
    case "STATUS":
      await status(context);
      return "";
    case "GC":
      await collectGarbage(context);
      return "";
    case "VERSION":
      return versionReply(JSON.stringify(request.config));
  }
}

async function runCalicoIpam(context: CniContext): Promise<string> {
  const { request, conf } = context;
  switch (request.command) {
    case "ADD": {
      const { ip } = request.args;
      const { ips } = await assignAddresses(context, { settings: conf.ipam, ip });
      // The routes are a hint between our two halves; another plugin would program them.
      return JSON.stringify(renderResult({ interfaces: [], ips, routes: [] }, request.cniVersion));
    }
    case "DEL":
      await releaseAddresses(context);
      return "";
    case "STATUS":
      await status(context);
      return "";
    case "GC":
      await collectGarbage(context);
      return "";
    case "CHECK":
      return "";
    case "VERSION":
      return versionReply(JSON.stringify(request.config));
  }
}

/** Whether an ADD would have a chance now. */
async function status(context: CniContext): Promise<void> {
  try {
    if (context.request.program === "calico") checkNodenameFile(context.conf);
    await requireReady(context);
    const foreign = context.request.program === "calico" ? foreignDataplane(context.conf) : undefined;
    if (foreign !== undefined) await (await import("./attach/grpc-dataplane.ts")).reachForeignDataplane(foreign);
  } catch (error) {
    throw notAvailable(error);
  }
}
