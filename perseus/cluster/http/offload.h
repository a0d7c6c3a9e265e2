// Runs blocking work (a database, a planner) for a coroutine, which must not block.
#pragma once

#include <boost/asio/awaitable.hpp>
#include <boost/asio/co_spawn.hpp>
#include <boost/asio/thread_pool.hpp>
#include <boost/asio/use_awaitable.hpp>
#include <optional>
#include <type_traits>
#include <utility>

namespace perseus::http {

// co_await Offload(pool, [&] { return store.FindJob(id); })
// Runs `work` on the pool. Then the coroutine continues on its own loop. What `work` refers to must
// live until then, as the locals of the coroutine do. Exceptions pass through. Join the pool before
// the loop is destroyed.
template <typename Work>
boost::asio::awaitable<std::invoke_result_t<Work&>> Offload(boost::asio::thread_pool& pool,
                                                            Work work) {
  using Answer = std::invoke_result_t<Work&>;
  // A named variable, because compilers treat temporaries in co_await differently.
  if constexpr (std::is_void_v<Answer>) {
    auto job = [&work]() -> boost::asio::awaitable<void> {
      work();
      co_return;
    };
    co_await boost::asio::co_spawn(pool, job, boost::asio::use_awaitable);
  } else {
    std::optional<Answer> answer;
    auto job = [&work, &answer]() -> boost::asio::awaitable<void> {
      answer.emplace(work());
      co_return;
    };
    co_await boost::asio::co_spawn(pool, job, boost::asio::use_awaitable);
    co_return *std::move(answer);
  }
}

}  // namespace perseus::http
