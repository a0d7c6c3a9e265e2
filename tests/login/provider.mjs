// A real OpenID Connect provider for the tests: oidc-provider, with the device code flow, three
// people, and its own pages for the login (any password is good).
//
//   node provider.mjs CERTIFICATE KEY TOKEN_SECONDS     prints its address, and runs until it is killed
import { generateKeyPair, exportJWK } from 'jose';
import Provider from 'oidc-provider';
import { readFileSync } from 'node:fs';
import { createServer } from 'node:https';

const [certificate, key, tokenSeconds] = process.argv.slice(2);

const people = {
  ann: { preferred_username: 'ann', groups: ['perseus-admins', 'team-a'] },
  bob: { preferred_username: 'bob', groups: ['team-a', 'team-b'] },
  eve: { preferred_username: 'eve', groups: [] },
};

async function privateKey(alg, kid) {
  const pair = await generateKeyPair(alg, { extractable: true });
  return { ...(await exportJWK(pair.privateKey)), alg, kid, use: 'sig' };
}

const server = createServer({ cert: readFileSync(certificate), key: readFileSync(key) });
server.listen(0, '127.0.0.1', async () => {
  const issuer = `https://localhost:${server.address().port}`;
  const provider = new Provider(issuer, {
    clients: [{
      client_id: 'perseus',
      token_endpoint_auth_method: 'none',
      application_type: 'native',
      grant_types: ['urn:ietf:params:oauth:grant-type:device_code', 'refresh_token'],
      response_types: [],
      redirect_uris: [],
    }],
    jwks: { keys: [await privateKey('RS256', 'rsa'), await privateKey('ES256', 'ec')] },
    cookies: { keys: ['only for tests'] },
    scopes: ['openid', 'offline_access', 'profile', 'groups'],
    claims: { openid: ['sub'], profile: ['preferred_username'], groups: ['groups'] },
    // The claims of the scopes are in the id token, and not only at the userinfo endpoint.
    conformIdTokenClaims: false,
    findAccount: (ctx, id) => ({
      accountId: id,
      claims: () => ({ sub: `id-of-${id}`, ...people[id] }),
    }),
    features: {
      deviceFlow: { enabled: true },
      revocation: { enabled: true },
      devInteractions: { enabled: true },
    },
    ttl: { IdToken: Number(tokenSeconds), AccessToken: Number(tokenSeconds), DeviceCode: 600,
      RefreshToken: 3600, Grant: 3600, Interaction: 600, Session: 600 },
  });
  server.on('request', provider.callback());
  console.log(issuer);
});
