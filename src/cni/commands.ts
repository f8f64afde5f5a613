// Runs a CNI command, in the plugin process or in the CNI service.
import { add } from "./attach/add.ts";
import { check } from "./attach/check.ts";
import type { CniContext } from "./context.ts";
import { grpcDataplane } from "./request/dataplane-options.ts";
import { del } from "./attach/del.ts";
import { notAvailable } from "./error.ts";
import { collectGarbage } from "./attach/gc.ts";
import { requireReady } from "./attach/readiness.ts";
import { assignPoolAddresses, releasePoolAddresses } from "./ipam/pool-addresses.ts";
import { checkNodenameFile } from "./request/node-files.ts";
import { rejectOwnNetns } from "./open-context.ts";
import { renderResult } from "./request/result.ts";
import { versionReply } from "./version.ts";

/** @returns the text for standard output */
export async function runCommand(context: CniContext): Promise<string> {
  return context.request.program === "calico" ? runCalico(context) : runCalicoIpam(context);
}

async function runCalico(context: CniContext): Promise<string> {
  const { request, conf } = context;
  switch (request.command) {
    case "ADD": {
      checkNodenameFile(conf);
      rejectOwnNetns(context);
      return JSON.stringify(renderResult(await add(context), request.cniVersion));
    }
    case "DEL":
      checkNodenameFile(conf);
      rejectOwnNetns(context);
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
      const { ips } = await assignPoolAddresses(context, { settings: conf.ipam, ip });
      // `calico` uses the routes internally; another plugin would program them.
      return JSON.stringify(renderResult({ interfaces: [], ips, routes: [] }, request.cniVersion));
    }
    case "DEL":
      await releasePoolAddresses(context);
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

/** @throws CniError if an ADD would fail now */
async function status(context: CniContext): Promise<void> {
  try {
    if (context.request.program === "calico") checkNodenameFile(context.conf);
    await requireReady(context);
    const grpc = context.request.program === "calico" ? grpcDataplane(context.conf) : undefined;
    if (grpc !== undefined) await (await import("./attach/grpc-dataplane.ts")).checkGrpcDataplane(grpc);
  } catch (error) {
    throw notAvailable(error);
  }
}
