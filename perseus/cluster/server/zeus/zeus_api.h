// The endpoints that Zeus's pipeline frequency optimizer calls (docs/how-to/zeus-clients.md).
#pragma once

#include "perseus/cluster/server/api/endpoints.h"

namespace perseus::server {

void AddZeusEndpoints(Endpoints& endpoints, boost::asio::thread_pool& pool);

}  // namespace perseus::server
