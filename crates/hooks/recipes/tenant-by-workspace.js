// recipes/tenant-by-workspace.js
// Tells the server whose data a call is about, by the directory that the session works in.
const TENANTS = [
  ["/srv/acme/", "acme"],
  ["/srv/globex/", "globex"],
]

// Both end in a slash, so that /srv/acme-old is not taken for /srv/acme.
const tenantOf = (workspace) => TENANTS.find(([prefix]) => `${workspace}/`.startsWith(prefix))?.[1]

export default {
  "mcp.call.before": (input, output) => {
    const tenant = tenantOf(input.workspace)
    // Hosts list tools before a workspace is known.
    if (tenant === undefined && input.method !== "tools/list") {
      throw new Error(`the workspace ${input.workspace ?? "(none)"} belongs to no tenant`)
    }
    // Set in any case: where it is undefined, what the host sent under these names is left out.
    output.headers["X-Tenant"] = tenant
    output.meta["example.org/tenant"] = tenant
  },
}
