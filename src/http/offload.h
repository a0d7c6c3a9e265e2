// Work that blocks (a database, a planner), awaited by a coroutine that must not.
#pragma once

#include <boost/asio/awaitable.hpp>
#include <boost/asio/post.hpp>
#include <boost/asio/thread_pool.hpp>
#include <boost/asio/use_awaitable.hpp>
#include <exception>
#include <memory>
#include <type_traits>
#include <utility>

namespace perseus::http {

// co_await Offload(pool, [&] { return store.FindJob(id); })
// Runs `work` on the pool; the coroutine goes on where it was. What `work` refers to has to live
// until then, as locals of the awaiting coroutine do. Exceptions pass through.
template <typename Work>
boost::asio::awaitable<std::invoke_result_t<Work>> Offload(boost::asio::thread_pool& pool,
                                                           Work work) {
  // Hops to the pool, works, and hops back with the coroutine's own executor.
  co_return co_await boost::asio::co_spawn(
      pool,
      [work = std::move(work)]() mutable -> boost::asio::awaitable<std::invoke_result_t<Work>> {
        co_return work();
      },
      boost::asio::use_awaitable);
}

}  // namespace perseus::http
